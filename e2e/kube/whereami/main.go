// Command whereami runs the lab's server package whereami in a container. whereami
// [PORT|PORT/udp]... serves HTTP, or UDP, on each port, by default on port 80. POD, NAMESPACE,
// NODE, CLUSTER and POD_IP are the identity in its answers.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/lab/whereami"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "whereami:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		args = []string{"80"}
	}
	var ports []whereami.Port
	for _, arg := range args {
		number, protocol, udp := strings.Cut(arg, "/")
		port, err := strconv.ParseUint(number, 10, 16)
		if err != nil || udp && protocol != "udp" {
			return fmt.Errorf("%q is not PORT or PORT/udp", arg)
		}
		p := whereami.Port{Protocol: "TCP", Number: int(port)}
		if udp {
			p.Protocol = "UDP"
		}
		ports = append(ports, p)
	}
	server, err := whereami.Start("", whereami.Identity{
		Pod: os.Getenv("POD"), Namespace: os.Getenv("NAMESPACE"), Node: os.Getenv("NODE"),
		Cluster: os.Getenv("CLUSTER"), PodIP: os.Getenv("POD_IP"),
	}, ports)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	<-ctx.Done()
	return server.Close()
}
