// k8sdds-attach: a CNI plugin that gives each pod a second interface. It follows the plugin of the first interface in a
// configuration, and calls another plugin, such as macvlan, for the second:
//
//	{"type": "k8sdds-attach", "interface": "net1", "delegate": {"type": "macvlan", ...}}
//
// The result of the first plugin remains the result of the pod, so that Kubernetes sees only its address.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

type configuration struct {
	types.NetConf
	Interface string         `json:"interface"`
	Delegate  map[string]any `json:"delegate"`
}

// parse returns the configuration, and that of the delegate: its type and text.
func parse(arguments *skel.CmdArgs) (*configuration, string, []byte, error) {
	parsed := &configuration{}
	if err := json.Unmarshal(arguments.StdinData, parsed); err != nil {
		return nil, "", nil, err
	}
	plugin, _ := parsed.Delegate["type"].(string)
	if plugin == "" || parsed.Interface == "" || parsed.Interface == arguments.IfName {
		return nil, "", nil, fmt.Errorf("interface %q and delegate of type %q: an interface other than %q and a plugin are needed",
			parsed.Interface, plugin, arguments.IfName)
	}
	// Addresses are reserved by network name: those of the second interface are another network's.
	parsed.Delegate["name"] = parsed.Name + "-" + parsed.Interface
	parsed.Delegate["cniVersion"] = parsed.CNIVersion
	text, err := json.Marshal(parsed.Delegate)
	return parsed, plugin, text, err
}

// delegate calls the delegate for the second interface; its other arguments are those of this process.
func delegate(arguments *skel.CmdArgs, call func(context.Context, string, []byte) error) error {
	parsed, plugin, text, err := parse(arguments)
	if err != nil {
		return err
	}
	if err := os.Setenv("CNI_IFNAME", parsed.Interface); err != nil {
		return err
	}
	if err := call(context.Background(), plugin, text); err != nil {
		return fmt.Errorf("%s of the plugin %s: %w", parsed.Interface, plugin, err)
	}
	return nil
}

func add(arguments *skel.CmdArgs) error {
	parsed, _, _, err := parse(arguments)
	if err != nil {
		return err
	}
	// Before the delegate creates an interface.
	if err := version.ParsePrevResult(&parsed.NetConf); err != nil {
		return err
	}
	if parsed.PrevResult == nil {
		return fmt.Errorf("it must follow another plugin in the configuration")
	}
	err = delegate(arguments, func(ctx context.Context, plugin string, text []byte) error {
		_, err := invoke.DelegateAdd(ctx, plugin, text, nil)
		return err
	})
	if err != nil {
		return err
	}
	return types.PrintResult(parsed.PrevResult, parsed.CNIVersion)
}

func remove(arguments *skel.CmdArgs) error {
	return delegate(arguments, func(ctx context.Context, plugin string, text []byte) error {
		return invoke.DelegateDel(ctx, plugin, text, nil)
	})
}

// check does not call the delegate, whose check needs a previous result of its own.
func check(arguments *skel.CmdArgs) error {
	_, _, _, err := parse(arguments)
	return err
}

func main() {
	functions := skel.CNIFuncs{Add: add, Del: remove, Check: check}
	skel.PluginMainFuncs(functions, version.PluginSupports("0.3.1", "0.4.0", "1.0.0"), "k8sdds-attach")
}
