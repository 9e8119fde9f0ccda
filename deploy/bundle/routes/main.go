// k8sdds-routes: the agent of the networks `host` and `macvlan`. On its node it writes the CNI configuration with the
// node's own ranges of pod addresses, one route for every other node's ranges, and masquerade rules; and follows nodes as
// they come and go.
//
//	NODE_NAME=node1 k8sdds-routes --template FILE --configuration FILE --pods 10.244.0.0/16 [--second 10.245.0.0/16]
//
// With two IP families, --pods has a range of each, separated by a comma.
// With --second, the plugin after the first in the configuration gets the node's link and its range of addresses for the
// second interfaces of pods.
// With --multus, it is the agent of Multus instead, next to any network: the template is that of the attachment, and goes
// to the same folder as the files with which the plugin reaches the API server. It then writes the configuration that calls
// Multus, --plugin, and creates the NetworkAttachmentDefinition. It changes no routes and no rules.
// Apart from that definition, it changes nothing in the cluster.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	account  = "/var/run/secrets/kubernetes.io/serviceaccount"
	protocol = "75" // marks our routes in the kernel
	table    = "k8sdds-host"

	namespace  = "k8sdds-network"
	attachment = "k8sdds-macvlan"
)

type node struct {
	Metadata struct{ Name string }
	Spec     struct{ PodCIDRs []string }
	Status   struct {
		Addresses []struct{ Type, Address string }
	}
}

// An ipFamily is 4 or 6.
type ipFamily int

func familyOf(address netip.Addr) ipFamily {
	if address.Is4() {
		return 4
	}
	return 6
}

// option returns the option of `ip` that selects the family.
func (f ipFamily) option() string { return fmt.Sprintf("-%d", f) }

// A place is where a node's pods are: their range and the node's address in each family.
type place struct{ pods, address [7]string }

func placeOf(n node) place {
	var found place
	for _, one := range n.Spec.PodCIDRs {
		if prefix, err := netip.ParsePrefix(one); err == nil {
			found.pods[familyOf(prefix.Addr())] = one
		}
	}
	for _, one := range n.Status.Addresses {
		address, err := netip.ParseAddr(one.Address)
		if err == nil && one.Type == "InternalIP" && found.address[familyOf(address)] == "" {
			found.address[familyOf(address)] = one.Address
		}
	}
	return found
}

// complete returns whether the node has a range for the pods of each family.
func (p place) complete(all []netip.Prefix) bool {
	for _, one := range all {
		if p.pods[familyOf(one.Addr())] == "" {
			return false
		}
	}
	return true
}

func run(input string, words ...string) (string, error) {
	command := exec.Command(words[0], words[1:]...)
	command.Stdin = bytes.NewBufferString(input)
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%v: %v: %s", words, err, bytes.TrimSpace(output))
	}
	return string(output), nil
}

// secondRange returns the part of the second interfaces' subnet that is where the node's pods are in the range of all pods.
func secondRange(second, all netip.Prefix, pods string) (map[string]any, error) {
	own, err := netip.ParsePrefix(pods)
	if err != nil {
		return nil, err
	}
	if !own.Addr().Is4() || !all.Contains(own.Addr()) || own.Bits() < second.Bits() || all.Bits() != second.Bits() {
		return nil, fmt.Errorf("%s is no part of %s with a counterpart in %s", own, all, second)
	}
	number := func(address netip.Addr) uint32 {
		bytes := address.As4()
		return binary.BigEndian.Uint32(bytes[:])
	}
	first := number(second.Addr()) + number(own.Addr()) - number(all.Addr())
	at := func(offset uint32) string {
		var bytes [4]byte
		binary.BigEndian.PutUint32(bytes[:], first+offset)
		return netip.AddrFrom4(bytes).String()
	}
	last := uint32(1)<<(32-own.Bits()) - 2
	return map[string]any{"subnet": second.String(), "rangeStart": at(1), "rangeEnd": at(last)}, nil
}

// linkOf returns the node's link with an address.
func linkOf(address string) (string, error) {
	text, err := run("", "ip", "-j", "-4", "address", "show", "to", address+"/32")
	if err != nil {
		return "", err
	}
	var links []struct{ Ifname string }
	if err := json.Unmarshal([]byte(text), &links); err != nil {
		return "", err
	}
	for _, one := range links {
		if one.Ifname != "" {
			return one.Ifname, nil
		}
	}
	return "", fmt.Errorf("no link has the node's address %s", address)
}

// attach completes the configuration of the plugin of pods' second interfaces.
func attach(delegate map[string]any, second, all netip.Prefix, at place) error {
	found, err := secondRange(second, all, at.pods[4])
	if err != nil {
		return err
	}
	delegate["ipam"].(map[string]any)["ranges"] = []any{[]any{found}}
	if delegate["master"] == nil {
		delegate["master"], err = linkOf(at.address[4])
	}
	return err
}

// configure writes the template with the node's range in it, at once whole, where it is not so already.
func configure(template, configuration string, second netip.Prefix, all []netip.Prefix, at place) error {
	text, err := os.ReadFile(template)
	if err != nil {
		return err
	}
	var wanted map[string]any
	if err := json.Unmarshal(text, &wanted); err != nil {
		return fmt.Errorf("%s: %v", template, err)
	}
	delegate := wanted // of Multus: the template has no other plugin
	if plugins, ok := wanted["plugins"].([]any); ok {
		ranges := []any{}
		for _, one := range all {
			ranges = append(ranges, []any{map[string]any{"subnet": at.pods[familyOf(one.Addr())]}})
		}
		plugins[0].(map[string]any)["ipam"].(map[string]any)["ranges"] = ranges
		if second.IsValid() {
			delegate = plugins[1].(map[string]any)["delegate"].(map[string]any)
		}
	}
	if second.IsValid() {
		if err := attach(delegate, second, all[0], at); err != nil {
			return err
		}
	}
	text, err = json.MarshalIndent(wanted, "", " ")
	if err != nil {
		return err
	}
	return write(configuration, text, 0o644)
}

// write makes this the content of a file, at once whole, where it is not so already.
func write(path string, text []byte, mode os.FileMode) error {
	if present, err := os.ReadFile(path); err == nil && bytes.Equal(present, text) {
		return nil
	}
	// Container runtimes and Multus read only names that end in .conf, .conflist or .json, so not this one.
	unfinished := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	// An existing file, which a killed agent leaves, would keep its mode.
	if err := os.Remove(unfinished); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.WriteFile(unfinished, text, mode); err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}

// multus writes what the plugin needs to reach the API server, creates the definition, and then makes the runtime use the
// plugin: as soon as the network of the cluster is there, which it calls first.
func (a *api) multus(ctx context.Context, folder, plugin string) error {
	for _, name := range []string{"ca.crt", "token"} {
		text, err := os.ReadFile(filepath.Join(account, name))
		if err != nil {
			return err
		}
		if err := write(filepath.Join(folder, name), text, 0o600); err != nil {
			return err
		}
	}
	access := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "multus",
 "clusters": [{"name": "multus", "cluster": {"server": %[1]q, "certificate-authority": "%[2]s/ca.crt"}}],
 "users": [{"name": "multus", "user": {"tokenFile": "%[2]s/token"}}],
 "contexts": [{"name": "multus", "context": {"cluster": "multus", "user": "multus"}}]}
`, a.base, folder)
	if err := write(filepath.Join(folder, "kubeconfig"), []byte(access), 0o600); err != nil {
		return err
	}
	if err := a.define(ctx); err != nil {
		return err
	}
	text, err := os.ReadFile(plugin)
	if err != nil {
		return err
	}
	var wanted map[string]any
	if err := json.Unmarshal(text, &wanted); err != nil {
		return fmt.Errorf("%s: %v", plugin, err)
	}
	pattern, _ := wanted["clusterNetwork"].(string)
	called, err := filepath.Glob(pattern)
	if err != nil || len(called) == 0 {
		return fmt.Errorf("%s does not exist yet (%v)", pattern, err) // the network's agent writes it
	}
	wanted["clusterNetwork"] = called[0]
	if text, err = json.MarshalIndent(wanted, "", " "); err != nil {
		return err
	}
	return write(filepath.Join(filepath.Dir(folder), filepath.Base(plugin)), text, 0o644)
}

// define creates the definition, whose configuration is the node's own, if it does not exist.
func (a *api) define(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	definition := fmt.Sprintf(`{"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
 "metadata": {"name": %q, "namespace": %q}}`, attachment, namespace)
	path := "/apis/k8s.cni.cncf.io/v1/namespaces/" + namespace + "/network-attachment-definitions"
	body, err := a.send(short, http.MethodPost, path, strings.NewReader(definition), http.StatusCreated, http.StatusConflict)
	if err != nil {
		return err
	}
	return body.Close()
}

// masquerade hides pods' addresses from everything outside of the cluster.
func masquerade(all []netip.Prefix) error {
	for _, pods := range all {
		family, multicast := "ip", "224.0.0.0/4"
		if pods.Addr().Is6() {
			family, multicast = "ip6", "ff00::/8"
		}
		_, err := run(fmt.Sprintf(`table %[1]s %[2]s
delete table %[1]s %[2]s
table %[1]s %[2]s {
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    %[1]s saddr %[3]s %[1]s daddr != %[3]s %[1]s daddr != %[4]s masquerade fully-random
  }
}
`, family, table, pods, multicast), "nft", "-f", "-")
		if err != nil {
			return err
		}
	}
	return nil
}

// route makes our routes in a family those to the other nodes, and no others.
func route(own string, places map[string]place, family ipFamily) error {
	wanted := map[string]string{}
	for name, one := range places {
		if name != own && one.pods[family] != "" && one.address[family] != "" {
			wanted[one.pods[family]] = one.address[family]
		}
	}
	text, err := run("", "ip", "-j", family.option(), "route", "show", "proto", protocol)
	if err != nil {
		return err
	}
	var present []struct{ Dst, Gateway string }
	if err := json.Unmarshal([]byte(text), &present); err != nil {
		return err
	}
	for _, one := range present {
		if wanted[one.Dst] == "" {
			if _, err := run("", "ip", family.option(), "route", "del", one.Dst, "proto", protocol); err != nil {
				return err
			}
		}
	}
	var last error
	for pods, address := range wanted {
		if _, err := run("", "ip", family.option(), "route", "replace", pods, "via", address, "proto", protocol); err != nil {
			last = err // a node on another network; the others get theirs
		}
	}
	return last
}

type api struct {
	client *http.Client
	base   string
}

func connect() (*api, error) {
	authority, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("no certificate in ca.crt")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, TLSHandshakeTimeout: 10 * time.Second}
	host := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	return &api{&http.Client{Transport: transport}, "https://" + host}, nil
}

func (a *api) get(ctx context.Context, query string) (io.ReadCloser, error) {
	return a.send(ctx, http.MethodGet, "/api/v1/nodes"+query, nil, http.StatusOK)
}

func (a *api) send(ctx context.Context, method, path string, content io.Reader, accepted ...int) (io.ReadCloser, error) {
	// Read each time: the kubelet renews it.
	token, err := os.ReadFile(filepath.Join(account, "token"))
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, a.base+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
	response, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(accepted, response.StatusCode) {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 300))
		response.Body.Close()
		return nil, fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(text))
	}
	return response.Body, nil
}

// follow calls `changed` with where all nodes' pods are: now, and whenever that changes.
func (a *api) follow(ctx context.Context, changed func(map[string]place) error) error {
	short, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	body, err := a.get(short, "")
	if err != nil {
		return err
	}
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []node
	}
	err = json.NewDecoder(body).Decode(&list)
	body.Close()
	if err != nil {
		return err
	}
	places := map[string]place{}
	for _, one := range list.Items {
		places[one.Metadata.Name] = placeOf(one)
	}
	if err := changed(places); err != nil {
		return err
	}
	// The server ends it after five minutes; the list that follows repairs what was lost meanwhile.
	watch, cancel := context.WithTimeout(ctx, 330*time.Second)
	defer cancel()
	body, err = a.get(watch, "?watch=1&timeoutSeconds=300&resourceVersion="+list.Metadata.ResourceVersion)
	if err != nil {
		return err
	}
	defer body.Close()
	events := json.NewDecoder(bufio.NewReader(body))
	for {
		var event struct {
			Type   string
			Object node
		}
		if err := events.Decode(&event); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if event.Type == "ERROR" {
			return nil // too old a version: list again
		}
		before := maps.Clone(places)
		places[event.Object.Metadata.Name] = placeOf(event.Object)
		if event.Type == "DELETED" {
			delete(places, event.Object.Metadata.Name)
		}
		if !maps.Equal(before, places) {
			if err := changed(places); err != nil {
				return err
			}
		}
	}
}

func main() {
	template := flag.String("template", "/etc/k8sdds-host/cni.json", "CNI configuration without addresses")
	configuration := flag.String("configuration", "/etc/cni/net.d/10-k8sdds-host.conflist", "where it goes")
	pods := flag.String("pods", "", "ranges of all pods of the cluster, separated by commas")
	plugin := flag.String("plugin", "/etc/k8sdds-host/00-k8sdds-multus.conf", "with --multus: configuration that calls the plugin")
	isMultus := flag.Bool("multus", false, "attach second interfaces next to another network")
	secondText := flag.String("second", "", "subnet of the pods' second interfaces, as large as that of all pods")
	flag.Parse()
	own := os.Getenv("NODE_NAME")
	var all []netip.Prefix
	for _, text := range strings.Split(*pods, ",") {
		one, err := netip.ParsePrefix(text)
		if err != nil || own == "" {
			log.Fatalf("--pods %q and NODE_NAME %q: ranges and a node's name are needed", *pods, own)
		}
		all = append(all, one)
	}
	var second netip.Prefix
	var err error
	if *secondText != "" {
		if second, err = netip.ParsePrefix(*secondText); err != nil {
			log.Fatalf("--second %q: a range is needed", *secondText)
		}
	}
	folder := filepath.Dir(*configuration)
	if *isMultus {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			log.Fatal(err)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	server, err := connect()
	if err != nil {
		log.Fatal(err)
	}
	settled := false
	for ctx.Err() == nil {
		err := server.follow(ctx, func(places map[string]place) error {
			if !places[own].complete(all) {
				log.Printf("%s has no range for pods yet", own)
				return nil
			}
			if *isMultus {
				if err := configure(*template, *configuration, second, all, places[own]); err != nil {
					return err
				}
				return server.multus(ctx, folder, *plugin)
			}
			if !settled {
				if err := masquerade(all); err != nil {
					return err
				}
			}
			for _, one := range all {
				if err := route(own, places, familyOf(one.Addr())); err != nil {
					return err
				}
			}
			if err := configure(*template, *configuration, second, all, places[own]); err != nil {
				return err
			}
			settled = true
			here := places[own]
			log.Printf("%s has pods%s; routes to %d other nodes", own, strings.Join(here.pods[:], " "), len(places)-1)
			return nil
		})
		if err != nil && ctx.Err() == nil {
			log.Print(err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}
