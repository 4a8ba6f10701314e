// Package whereami is the server of the lab's pods. It responds to every request with the pod's
// identity and the client's address.
package whereami

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"hawser.dev/hawser/lab/netnsexec"
)

// Identity is the identity of a pod.
type Identity struct {
	Pod       string `json:"pod"`
	Namespace string `json:"namespace"`
	Node      string `json:"node"`
	Cluster   string `json:"cluster"`
	PodIP     string `json:"pod_ip"`
}

// Answer is the body of every reply.
type Answer struct {
	Identity
	Client string `json:"client"` // client address as the server sees it, without port
}

// Port is one port to serve.
type Port struct {
	Protocol string // TCP: HTTP on any path, and /stream; UDP: one datagram for each received one
	Number   int
}

// Server serves the ports of one pod.
type Server struct {
	id    Identity
	http  *http.Server
	udp   []net.PacketConn
	group sync.WaitGroup
}

// Start opens the ports on all addresses in the namespace pinned at ns, and serves them until
// Close. An empty ns is the program's current namespace.
func Start(ns string, id Identity, ports []Port) (*Server, error) {
	s := &Server{id: id}
	s.http = &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	var listeners []net.Listener
	inNamespace := func(fn func() error) error { return fn() }
	if ns != "" {
		inNamespace = func(fn func() error) error { return netnsexec.Do(ns, fn) }
	}
	err := inNamespace(func() error {
		for _, port := range ports {
			address := fmt.Sprintf(":%d", port.Number)
			if port.Protocol == "UDP" {
				conn, err := net.ListenPacket("udp", address)
				if err != nil {
					return err
				}
				s.udp = append(s.udp, conn)
				continue
			}
			listener, err := net.Listen("tcp", address)
			if err != nil {
				return err
			}
			listeners = append(listeners, listener)
		}
		return nil
	})
	for _, listener := range listeners {
		s.group.Go(func() { _ = s.http.Serve(listener) })
	}
	for _, conn := range s.udp {
		s.group.Go(func() { s.echo(conn) })
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve pod %s/%s: %w", id.Namespace, id.Pod, err), s.Close())
	}
	return s, nil
}

// Close closes all connections and waits for the servers.
func (s *Server) Close() error {
	errs := []error{s.http.Close()}
	for _, conn := range s.udp {
		errs = append(errs, conn.Close())
	}
	s.group.Wait()
	return errors.Join(errs...)
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(s.answer(r.RemoteAddr))
	})
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		interval, err := time.ParseDuration(r.URL.Query().Get("interval"))
		if err != nil || interval <= 0 {
			interval = 100 * time.Millisecond
		}
		s.stream(r.Context(), w, interval, s.answer(r.RemoteAddr))
	})
	return mux
}

// stream sends a line every interval to a silent client, until the client disconnects.
func (s *Server) stream(ctx context.Context, w http.ResponseWriter, interval time.Duration, line []byte) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if _, err := w.Write(line); err != nil {
			return
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Server) echo(conn net.PacketConn) {
	buffer := make([]byte, 64<<10)
	for {
		_, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil { // other errors are ICMP messages about earlier replies
			_, _ = conn.WriteTo(s.answer(from.String()), from)
		}
	}
}

func (s *Server) answer(remote string) []byte {
	client := remote
	if at, err := netip.ParseAddrPort(remote); err == nil {
		client = at.Addr().Unmap().WithZone("").String()
	}
	raw, err := json.Marshal(Answer{Identity: s.id, Client: client})
	if err != nil {
		panic(err) // strings always marshal
	}
	return append(raw, '\n')
}
