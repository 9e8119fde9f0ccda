// k8sdds-routes: the agent of the network `host`. On its node it writes the CNI configuration with the node's own range
// of pod addresses, one route for every other node's range, and a masquerade rule; and follows nodes as they come and go.
//
//	NODE_NAME=node1 k8sdds-routes --template FILE --configuration FILE --pods 10.244.0.0/16
//
// It reads Node objects and changes nothing in the cluster.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
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
	"syscall"
	"time"
)

const (
	account  = "/var/run/secrets/kubernetes.io/serviceaccount"
	protocol = "75" // marks our routes in the kernel
	table    = "k8sdds-host"
)

type node struct {
	Metadata struct{ Name string }
	Spec     struct{ PodCIDR string }
	Status   struct {
		Addresses []struct{ Type, Address string }
	}
}

func (n node) address() string {
	for _, one := range n.Status.Addresses {
		if one.Type == "InternalIP" {
			return one.Address
		}
	}
	return ""
}

// A place is where a node's pods are.
type place struct{ pods, address string }

func run(input string, words ...string) (string, error) {
	command := exec.Command(words[0], words[1:]...)
	command.Stdin = bytes.NewBufferString(input)
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%v: %v: %s", words, err, bytes.TrimSpace(output))
	}
	return string(output), nil
}

// configure writes the template with the node's range in it, at once whole, where it is not so already.
func configure(template, configuration, pods string) error {
	text, err := os.ReadFile(template)
	if err != nil {
		return err
	}
	var wanted map[string]any
	if err := json.Unmarshal(text, &wanted); err != nil {
		return fmt.Errorf("%s: %v", template, err)
	}
	bridge := wanted["plugins"].([]any)[0].(map[string]any)
	bridge["ipam"].(map[string]any)["ranges"] = []any{[]any{map[string]any{"subnet": pods}}}
	text, err = json.MarshalIndent(wanted, "", " ")
	if err != nil {
		return err
	}
	if present, err := os.ReadFile(configuration); err == nil && bytes.Equal(present, text) {
		return nil
	}
	// The dot keeps container runtimes from reading it half-written.
	unfinished := filepath.Join(filepath.Dir(configuration), ".k8sdds-host")
	if err := os.WriteFile(unfinished, text, 0o644); err != nil {
		return err
	}
	return os.Rename(unfinished, configuration)
}

// masquerade hides pods' addresses from everything outside of the cluster.
func masquerade(pods string) error {
	_, err := run(fmt.Sprintf(`table ip %[1]s
delete table ip %[1]s
table ip %[1]s {
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr %[2]s ip daddr != %[2]s ip daddr != 224.0.0.0/4 masquerade fully-random
  }
}
`, table, pods), "nft", "-f", "-")
	return err
}

// route makes our routes those to the other nodes, and no others.
func route(own string, places map[string]place) error {
	wanted := map[string]string{}
	for name, one := range places {
		if name != own && one.pods != "" && one.address != "" {
			wanted[one.pods] = one.address
		}
	}
	text, err := run("", "ip", "-j", "-4", "route", "show", "proto", protocol)
	if err != nil {
		return err
	}
	var present []struct{ Dst, Gateway string }
	if err := json.Unmarshal([]byte(text), &present); err != nil {
		return err
	}
	for _, one := range present {
		if wanted[one.Dst] == "" {
			if _, err := run("", "ip", "route", "del", one.Dst, "proto", protocol); err != nil {
				return err
			}
		}
	}
	var last error
	for pods, address := range wanted {
		if _, err := run("", "ip", "route", "replace", pods, "via", address, "proto", protocol); err != nil {
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
	return &api{&http.Client{Transport: transport}, "https://" + host + "/api/v1/nodes"}, nil
}

func (a *api) get(ctx context.Context, query string) (io.ReadCloser, error) {
	// Read each time: the kubelet renews it.
	token, err := os.ReadFile(filepath.Join(account, "token"))
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+query, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
	response, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
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
		places[one.Metadata.Name] = place{one.Spec.PodCIDR, one.address()}
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
		places[event.Object.Metadata.Name] = place{event.Object.Spec.PodCIDR, event.Object.address()}
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
	pods := flag.String("pods", "", "range of all pods of the cluster")
	flag.Parse()
	own := os.Getenv("NODE_NAME")
	if _, err := netip.ParsePrefix(*pods); err != nil || own == "" {
		log.Fatalf("--pods %q and NODE_NAME %q: a range and a node's name are needed", *pods, own)
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
			if places[own].pods == "" {
				log.Printf("%s has no range for pods yet", own)
				return nil
			}
			if !settled {
				if err := masquerade(*pods); err != nil {
					return err
				}
			}
			if err := route(own, places); err != nil {
				return err
			}
			if err := configure(*template, *configuration, places[own].pods); err != nil {
				return err
			}
			settled = true
			log.Printf("%s has pods %s; routes to %d other nodes", own, places[own].pods, len(places)-1)
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
