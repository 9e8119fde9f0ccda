// k8sdds-probe: do datagrams pass between two pods, by unicast and by multicast?
//
//	k8sdds-probe listen --udp 7000 [--group 239.255.0.1]     answers each datagram to its sender, by IPv4 and IPv6
//	k8sdds-probe listen --udp 7000 --for 20                  the same for 20 seconds; prints "ready" when it listens
//	k8sdds-probe ask ADDRESS:PORT --count 5 --timeout 10     0 when all answers came, JSON of what was seen
//	k8sdds-probe ask ADDRESS:PORT --bytes 1472 --whole       by packets that may not be fragmented
//	k8sdds-probe ask GROUP:PORT --interface eth0             multicast out of that interface
//	k8sdds-probe ask GROUP:PORT --no-loop                    multicast that this pod itself does not receive
//
// ADDRESS and GROUP may be of IPv4 or of IPv6, which is written in brackets before a port.
//
//	k8sdds-probe sleep                                       does nothing until it is ended
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func fail(code int, err error) {
	fmt.Fprintf(os.Stderr, "k8sdds-probe: %v\n", err)
	os.Exit(code)
}

// family returns the suffix of Go's names of networks: 4 or 6.
func family(address net.IP) string {
	if address.To4() != nil {
		return "4"
	}
	return "6"
}

func answer(connection *net.UDPConn) {
	buffer := make([]byte, 65536)
	host, _ := os.Hostname()
	for {
		size, peer, err := connection.ReadFromUDP(buffer)
		if err != nil {
			fail(3, err)
		}
		// Multicast is answered by unicast from the port that was asked.
		_, _ = connection.WriteToUDP(append([]byte(host+" "), buffer[:size]...), peer)
	}
}

// joinEverywhere lets a socket receive a group from every interface, not only from the one that the routes select.
func joinEverywhere(connection *net.UDPConn, group net.IP) {
	raw, err := connection.SyscallConn()
	if err != nil {
		fail(3, err)
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		fail(3, err)
	}
	_ = raw.Control(func(fd uintptr) {
		for _, one := range interfaces {
			if one.Flags&net.FlagMulticast == 0 {
				continue
			}
			// One of them has been joined already.
			if group.To4() != nil {
				request := &syscall.IPMreqn{Multiaddr: [4]byte(group.To4()), Ifindex: int32(one.Index)}
				_ = syscall.SetsockoptIPMreqn(int(fd), syscall.IPPROTO_IP, syscall.IP_ADD_MEMBERSHIP, request)
			} else {
				request := &syscall.IPv6Mreq{Multiaddr: [16]byte(group.To16()), Interface: uint32(one.Index)}
				_ = syscall.SetsockoptIPv6Mreq(int(fd), syscall.IPPROTO_IPV6, syscall.IPV6_JOIN_GROUP, request)
			}
		}
	})
}

func listen(arguments []string) {
	flags := flag.NewFlagSet("listen", flag.ExitOnError)
	port := flags.Int("udp", 7000, "port")
	group := flags.String("group", "", "multicast group to join as well")
	seconds := flags.Float64("for", 0, "seconds until it ends; 0: never")
	_ = flags.Parse(arguments)
	if *seconds > 0 {
		time.AfterFunc(time.Duration(*seconds*float64(time.Second)), func() { os.Exit(0) })
	}
	if *group != "" {
		address := net.ParseIP(*group)
		if address == nil || !address.IsMulticast() {
			fail(2, fmt.Errorf("--group %s: no multicast address", *group))
		}
		// Bound to the group, so both sockets can have the port.
		joined, err := net.ListenMulticastUDP("udp"+family(address), nil, &net.UDPAddr{IP: address, Port: *port})
		if err != nil {
			fail(3, err)
		}
		joinEverywhere(joined, address)
		go answer(joined)
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
		})
	}}
	packets, err := config.ListenPacket(context.Background(), "udp", net.JoinHostPort("", strconv.Itoa(*port)))
	if err != nil {
		fail(3, err)
	}
	fmt.Fprintln(os.Stderr, "ready")
	answer(packets.(*net.UDPConn))
}

func set(connection *net.UDPConn, level, option, value int) {
	raw, err := connection.SyscallConn()
	if err != nil {
		fail(3, err)
	}
	var refused error
	if err := raw.Control(func(fd uintptr) {
		refused = syscall.SetsockoptInt(int(fd), level, option, value)
	}); err != nil {
		fail(3, err)
	}
	if refused != nil {
		fail(3, refused)
	}
}

func ask(arguments []string) {
	if len(arguments) == 0 {
		fail(2, fmt.Errorf("ask whom? ADDRESS:PORT"))
	}
	flags := flag.NewFlagSet("ask", flag.ExitOnError)
	count := flags.Int("count", 5, "answers wanted")
	timeout := flags.Float64("timeout", 10, "seconds to try")
	size := flags.Int("bytes", 64, "payload")
	whole := flags.Bool("whole", false, "packets may not be fragmented")
	out := flags.String("interface", "", "that multicast leaves by")
	quiet := flags.Bool("no-loop", false, "this pod does not receive its own multicast")
	_ = flags.Parse(arguments[1:])
	peer, err := net.ResolveUDPAddr("udp", arguments[0])
	if err != nil {
		fail(2, err)
	}
	// Not connected: the answer to multicast comes from a unicast address.
	connection, err := net.ListenUDP("udp"+family(peer.IP), nil)
	if err != nil {
		fail(3, err)
	}
	ipv6 := peer.IP.To4() == nil
	if *whole && ipv6 {
		set(connection, syscall.IPPROTO_IPV6, syscall.IPV6_MTU_DISCOVER, syscall.IPV6_PMTUDISC_DO)
	} else if *whole {
		set(connection, syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER, syscall.IP_PMTUDISC_DO)
	}
	if *quiet && ipv6 {
		set(connection, syscall.IPPROTO_IPV6, syscall.IPV6_MULTICAST_LOOP, 0)
	} else if *quiet {
		set(connection, syscall.IPPROTO_IP, syscall.IP_MULTICAST_LOOP, 0)
	}
	if *out != "" {
		link, err := net.InterfaceByName(*out)
		if err != nil {
			fail(2, err)
		}
		if ipv6 {
			set(connection, syscall.IPPROTO_IPV6, syscall.IPV6_MULTICAST_IF, link.Index)
		} else {
			raw, err := connection.SyscallConn()
			if err != nil {
				fail(3, err)
			}
			request := &syscall.IPMreqn{Ifindex: int32(link.Index)}
			if err := raw.Control(func(fd uintptr) {
				_ = syscall.SetsockoptIPMreqn(int(fd), syscall.IPPROTO_IP, syscall.IP_MULTICAST_IF, request)
			}); err != nil {
				fail(3, err)
			}
		}
	}
	end := time.Now().Add(time.Duration(*timeout * float64(time.Second)))
	payload, buffer := make([]byte, max(*size, 1)), make([]byte, 65536)
	sent, received, from, last := 0, 0, map[string]int{}, ""
	for received < *count && time.Now().Before(end) {
		sent++
		if _, err := connection.WriteToUDP(payload, peer); err != nil {
			last = err.Error()
			time.Sleep(100 * time.Millisecond)
			continue
		}
		_ = connection.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if _, source, err := connection.ReadFromUDP(buffer); err == nil {
			received++
			from[source.String()]++
		} else {
			last = err.Error()
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{
		"asked": arguments[0], "sent": sent, "received": received, "wanted": *count, "from": from, "last_error": last,
	})
	if received < *count {
		os.Exit(1)
	}
}

func main() {
	command := ""
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	switch command {
	case "listen":
		listen(os.Args[2:])
	case "ask":
		ask(os.Args[2:])
	case "sleep":
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
		<-ended
	default:
		fail(2, fmt.Errorf("listen, ask or sleep"))
	}
}
