package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"hawser.dev/hawser/lab/netnsexec"
)

// The API servers are inside the lab's network namespaces. The API proxy is a process on the host.
// It accepts connections on one loopback port per cluster, and forwards them to the API server.

// startAPIProxy starts the API proxy, which runs until down kills it. It writes a kubeconfig with
// the proxy's addresses.
func (l *Lab) startAPIProxy(authorities map[string]*authority) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	log, err := os.OpenFile(l.path("api-proxy.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log of the API proxy: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(self, "--dir", l.Dir, "api-proxy")
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Setsid: true}
	cmd.Env = append(os.Environ(), l.environmentMark())
	config := kubeconfig{}
	for _, c := range l.Clusters {
		listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return fmt.Errorf("open the API proxy of %s: %w", c, err)
		}
		defer listener.Close()
		file, err := listener.File()
		if err != nil {
			return fmt.Errorf("open the API proxy of %s: %w", c, err)
		}
		defer file.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, file)
		admin, err := authorities[c].issueCertificate("admin", nil, nil, "system:masters")
		if err != nil {
			return err
		}
		config.add(c, "https://"+listener.Addr().String(), authorities[c].ca, admin)
	}
	if err := os.WriteFile(l.kubeconfig(), []byte(config.String()), 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the API proxy: %w", err)
	}
	return cmd.Process.Release()
}

// runAPIProxy runs the API proxy in its own process. It inherits the listeners as files from number
// 3, in the order of the clusters.
func (l *Lab) runAPIProxy() error {
	var all sync.WaitGroup
	for i, m := range l.Machines[:len(l.Clusters)] {
		listener, err := net.FileListener(os.NewFile(uintptr(3+i), "api-proxy"))
		if err != nil {
			return fmt.Errorf("listen for API server of %s: %w", m.Cluster, err)
		}
		all.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go l.forward(m, conn.(*net.TCPConn))
			}
		})
	}
	all.Wait()
	return nil
}

func (l *Lab) forward(m Node, outside *net.TCPConn) {
	defer outside.Close()
	var inside *net.TCPConn
	err := netnsexec.Do(l.netnsPath(m.Name), func() error {
		to := &net.TCPAddr{IP: m.Addrs[0].AsSlice(), Port: 6443}
		conn, err := net.DialTCP("tcp", nil, to)
		inside = conn
		return err
	})
	if err != nil {
		return // the client sees a closed connection
	}
	defer inside.Close()
	done := make(chan bool, 2)
	copyStream := func(to, from *net.TCPConn) {
		_, _ = io.Copy(to, from)
		_ = to.CloseWrite()
		done <- true
	}
	go copyStream(inside, outside)
	go copyStream(outside, inside)
	<-done
	<-done
}

// kubeconfig collects the clusters, users and contexts of a kubeconfig file.
type kubeconfig struct {
	current                   string
	clusters, users, contexts strings.Builder
}

func (k *kubeconfig) add(name, server string, ca, user pair) {
	if k.current == "" {
		k.current = name
	}
	fmt.Fprintf(&k.clusters, "- name: %s\n  cluster: {server: %q, certificate-authority-data: %s}\n", name, server, ca.encoded())
	fmt.Fprintf(&k.users, "- name: %s\n  user: {client-certificate-data: %s, client-key-data: %s}\n", name, user.encoded(), user.secret())
	fmt.Fprintf(&k.contexts, "- name: %[1]s\n  context: {cluster: %[1]s, user: %[1]s}\n", name)
}

func (k *kubeconfig) String() string {
	return "apiVersion: v1\nkind: Config\ncurrent-context: " + k.current +
		"\nclusters:\n" + k.clusters.String() + "users:\n" + k.users.String() + "contexts:\n" + k.contexts.String()
}
