// The CNI plugin `flannel` for bundles: it reads the node's ranges of pod addresses that flanneld writes, and calls another
// plugin, by default `bridge`, with them. A range is of IPv4, of IPv6, or there is one of each.
//
//	{"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}}
//
// What the other plugin was called with is kept for the removal of the pod, since flanneld may have ended by then.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

type configuration struct {
	types.NetConf
	SubnetFile string         `json:"subnetFile"`
	DataDir    string         `json:"dataDir"`
	Delegate   map[string]any `json:"delegate"`
}

func parse(arguments *skel.CmdArgs) (*configuration, error) {
	parsed := &configuration{SubnetFile: "/run/flannel/subnet.env", DataDir: "/var/lib/cni/flannel"}
	if err := json.Unmarshal(arguments.StdinData, parsed); err != nil {
		return nil, err
	}
	if parsed.Delegate == nil {
		parsed.Delegate = map[string]any{}
	}
	for _, key := range []string{"name", "cniVersion", "ipam"} {
		if parsed.Delegate[key] != nil {
			return nil, fmt.Errorf("delegate: remove %q, which this plugin sets", key)
		}
	}
	return parsed, nil
}

// subnets reads the variables of flanneld's file.
func subnets(path string) (map[string]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("flanneld has not written the node's range of addresses: %w", err)
	}
	defer file.Close()
	found := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), "="); ok {
			found[name] = value
		}
	}
	return found, lines.Err()
}

// complete returns the whole configuration of the other plugin.
func (c *configuration) complete(variables map[string]string) ([]byte, error) {
	ranges, routes := []any{}, []any{}
	for _, family := range []string{"", "IPV6_"} {
		if subnet := variables["FLANNEL_"+family+"SUBNET"]; subnet != "" {
			ranges = append(ranges, []any{map[string]any{"subnet": network(subnet)}})
			// flanneld separates several networks by commas.
			for _, destination := range strings.Split(variables["FLANNEL_"+family+"NETWORK"], ",") {
				routes = append(routes, map[string]any{"dst": destination})
			}
		}
	}
	if len(ranges) == 0 {
		return nil, fmt.Errorf("%s contains no range of addresses", c.SubnetFile)
	}
	set := func(key string, value any) {
		if c.Delegate[key] == nil {
			c.Delegate[key] = value
		}
	}
	set("type", "bridge")
	if c.Delegate["type"] == "bridge" {
		set("isGateway", true)
	}
	if c.Delegate["mtu"] == nil {
		mtu, err := strconv.Atoi(variables["FLANNEL_MTU"])
		if err != nil {
			return nil, fmt.Errorf("%s: FLANNEL_MTU: %w", c.SubnetFile, err)
		}
		c.Delegate["mtu"] = mtu
	}
	// Either flanneld hides the addresses of pods from other networks, or the other plugin.
	set("ipMasq", variables["FLANNEL_IPMASQ"] != "true")
	c.Delegate["name"], c.Delegate["cniVersion"] = c.Name, c.CNIVersion
	c.Delegate["ipam"] = map[string]any{"type": "host-local", "ranges": ranges, "routes": routes}
	return json.Marshal(c.Delegate)
}

// network returns the range of a gateway's address with its length: flanneld writes 10.244.1.1/24.
func network(subnet string) string {
	_, parsed, err := net.ParseCIDR(subnet)
	if err != nil {
		return subnet
	}
	return parsed.String()
}

func add(arguments *skel.CmdArgs) error {
	parsed, err := parse(arguments)
	if err != nil {
		return err
	}
	variables, err := subnets(parsed.SubnetFile)
	if err != nil {
		return err
	}
	text, err := parsed.complete(variables)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(parsed.DataDir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(parsed.DataDir, arguments.ContainerID), text, 0o600); err != nil {
		return err
	}
	result, err := invoke.DelegateAdd(context.Background(), parsed.Delegate["type"].(string), text, nil)
	if err != nil {
		return err
	}
	return types.PrintResult(result, parsed.CNIVersion)
}

func remove(arguments *skel.CmdArgs) error {
	parsed, err := parse(arguments)
	if err != nil {
		return err
	}
	path := filepath.Join(parsed.DataDir, arguments.ContainerID)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was removed before
	} else if err != nil {
		return err
	}
	kept := &types.NetConf{}
	if err := json.Unmarshal(text, kept); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := invoke.DelegateDel(context.Background(), kept.Type, text, nil); err != nil {
		return err
	}
	return os.Remove(path)
}

// check calls the other plugin, with the previous result of this one.
func check(arguments *skel.CmdArgs) error {
	parsed, err := parse(arguments)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(parsed.DataDir, arguments.ContainerID))
	if err != nil {
		return err
	}
	kept := map[string]any{}
	if err := json.Unmarshal(text, &kept); err != nil {
		return err
	}
	kept["prevResult"] = parsed.RawPrevResult
	if text, err = json.Marshal(kept); err != nil {
		return err
	}
	return invoke.DelegateCheck(context.Background(), kept["type"].(string), text, nil)
}

func main() {
	functions := skel.CNIFuncs{Add: add, Del: remove, Check: check}
	skel.PluginMainFuncs(functions, version.PluginSupports("0.3.0", "0.3.1", "0.4.0", "1.0.0"), "flannel")
}
