// k8sdds-meter: what a node spends beside its pods' own work, read once, from a pod on it.
//
//	k8sdds-meter [--kubelet ADDRESS] [--rules]     one JSON document, raw as the sources give it
//	k8sdds-meter wait                              does nothing until it is ended
//
// It reads /proc/stat (the node's, in every container), the kubelet's /metrics/resource and its own process
// metrics (its ServiceAccount needs `get` on nodes/metrics, nothing else), and with --rules the packet
// filters, which needs the node's network namespace and NET_ADMIN.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	tokenFile   = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	limit       = 64 << 20
	stampLayout = "2006-01-02T15:04:05.000000Z"
)

type reading struct {
	Schema   int               `json:"schema"`
	Node     string            `json:"node"`
	At       string            `json:"at"`
	BootID   string            `json:"boot_id"`
	Stat     string            `json:"stat"`
	CPUs     int               `json:"cpus"`
	Resource string            `json:"resource,omitempty"`
	Kubelet  string            `json:"kubelet,omitempty"`
	Nft      json.RawMessage   `json:"nft,omitempty"`
	Iptables string            `json:"iptables,omitempty"`
	Lacks    map[string]string `json:"lacks"`
}

func fail(code int, err error) {
	fmt.Fprintf(os.Stderr, "k8sdds-meter: %v\n", err)
	os.Exit(code)
}

// The line of all processors, and how many there are.
func stat() (string, int, error) {
	content, err := os.ReadFile("/proc/stat")
	if err != nil {
		return "", 0, err
	}
	all, cpus := "", 0
	for _, line := range strings.Split(string(content), "\n") {
		switch {
		case strings.HasPrefix(line, "cpu "):
			all = line
		case strings.HasPrefix(line, "cpu"):
			cpus++
		}
	}
	return all, cpus, nil
}

func ask(address, path string) (string, error) {
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return "", err
	}
	// A kubelet signs its own certificate unless the cluster was told otherwise.
	client := http.Client{Timeout: 8 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // #nosec G402
	}}
	request, err := http.NewRequest(http.MethodGet, "https://"+net.JoinHostPort(address, "10250")+path, nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, limit))
	if err != nil {
		return "", err
	}
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(body)))
	}
	return string(body), nil
}

// The lines of some metrics, without their comments.
func only(text string, prefixes ...string) string {
	var kept strings.Builder
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		for _, prefix := range prefixes {
			if strings.HasPrefix(lines.Text(), prefix) {
				kept.WriteString(lines.Text() + "\n")
			}
		}
	}
	return kept.String()
}

func output(argv ...string) ([]byte, error) {
	ended, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	command := exec.CommandContext(ended, argv[0], argv[1:]...)
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %s", err, strings.TrimSpace(said.String()))
	}
	return out, nil
}

func (found *reading) rules() {
	if out, err := output("nft", "--json", "--terse", "list", "ruleset"); err != nil {
		found.Lacks["nft"] = err.Error()
	} else {
		found.Nft = json.RawMessage(out)
	}
	// What iptables-nft makes is in nft's list; these are the older kernel interface's.
	for _, family := range []string{"iptables-save", "ip6tables-save"} {
		if out, err := output("xtables-legacy-multi", family); err != nil {
			found.Lacks["iptables"] = err.Error()
		} else {
			found.Iptables += string(out)
		}
	}
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "wait" {
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
		<-ended
		return
	}
	kubelet := flag.String("kubelet", os.Getenv("HOST_IP"), "address of this node's kubelet")
	rules := flag.Bool("rules", false, "the packet filters too")
	flag.Parse()
	if flag.NArg() > 0 {
		fail(2, fmt.Errorf("%s: nothing more is taken", flag.Arg(0)))
	}
	found := reading{Schema: 1, Node: os.Getenv("NODE_NAME"), Lacks: map[string]string{}}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	found.BootID = strings.TrimSpace(string(boot))
	var err error
	if *kubelet == "" {
		found.Lacks["kubelet"] = "HOST_IP is not set"
	} else {
		if found.Resource, err = ask(*kubelet, "/metrics/resource"); err != nil {
			found.Lacks["resource"] = err.Error()
		}
		own, err := ask(*kubelet, "/metrics")
		if err != nil {
			found.Lacks["kubelet"] = err.Error()
		}
		found.Kubelet = only(own, "process_cpu_seconds_total ", "process_resident_memory_bytes ",
			"process_start_time_seconds ")
	}
	if *rules {
		found.rules()
	}
	// Last, so that what it has read above is within the interval on both sides.
	found.At = time.Now().UTC().Format(stampLayout)
	if found.Stat, found.CPUs, err = stat(); err != nil {
		fail(3, err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		fail(3, err)
	}
}
