package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"hawser.dev/hawser/nodeagent/dns"
	"hawser.dev/hawser/nodeagent/kernel"
	"hawser.dev/hawser/schema/fabric"
)

const (
	dnsPort      = 53
	httpTimeout  = 5 * time.Second        // for the header of a request
	httpIdle     = 2 * time.Minute        // between two requests on a connection
	dnsAddrFirst = 10 * time.Millisecond  // between looks for the address while there is none
	dnsAddrRetry = 200 * time.Millisecond // between looks whether it has changed
)

// listen opens the unix socket, which answers everything, before anything else
// starts. A socket file that a killed agent left is replaced.
func (a *Agent) listen() (net.Listener, error) {
	if err := os.Remove(a.config.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("replace socket: %w", err)
	}
	unix, err := net.Listen("unix", a.config.Socket)
	if err != nil {
		return nil, fmt.Errorf("listen for status: %w", err)
	}
	if err := os.Chmod(a.config.Socket, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protect socket: %w", err), unix.Close())
	}
	return unix, nil
}

// serve answers on a socket until ctx ends.
func serve(ctx context.Context, socket net.Listener, handler http.Handler) error {
	h := &http.Server{Handler: handler, ReadHeaderTimeout: httpTimeout, IdleTimeout: httpIdle}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := h.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return h.Close()
	})
	return group.Wait()
}

// control is what the unix socket answers: all, and what changes something.
func (a *Agent) control() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", a.public())
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { a.send(w, a.status()) })
	mux.HandleFunc("GET /drain", func(w http.ResponseWriter, _ *http.Request) { a.send(w, a.drainState(time.Now())) })
	set := func(drained bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if err := a.setDrained(drained); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			a.send(w, a.drainState(time.Now()))
		}
	}
	mux.HandleFunc("POST /drain", set(true))
	mux.HandleFunc("POST /undrain", set(false))
	mux.HandleFunc("POST /drain/until-restart", func(w http.ResponseWriter, _ *http.Request) {
		a.passDrained()
		a.send(w, a.drainState(time.Now()))
	})
	mux.HandleFunc("GET /diagnose", a.serveDiagnosis)
	mux.HandleFunc("GET /verify", a.serveVerification)
	mux.HandleFunc("GET /kernel", a.serveKernel)
	mux.HandleFunc("GET /plan", a.servePlan)
	mux.HandleFunc("GET /sight", func(w http.ResponseWriter, _ *http.Request) { a.send(w, a.sight()) })
	return mux
}

func (a *Agent) send(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		a.log.Debug("answer not sent", "err", err)
	}
}

// public is what TCP addresses answer too: whoever reaches the node can ask them, so
// that nothing of it changes anything or tells what the clusterset is like inside.
func (a *Agent) public() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !a.brief().Ready {
			http.Error(w, "not ready: see hawser-agent status", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", a.metrics.handler())
	return mux
}

// serveNames answers DNS at the address given by the command line, or else at
// those that the fabric says; it follows the fabric when they change.
func (a *Agent) serveNames(ctx context.Context) error {
	for ctx.Err() == nil {
		addrs := a.dnsAddrs()
		if len(addrs) == 0 {
			pause(ctx, dnsAddrFirst)
			continue
		}
		group, serving := errgroup.WithContext(ctx)
		serving, stop := context.WithCancel(serving)
		a.records.ServeAt(addrs)
		var up atomic.Int32
		for _, addr := range addrs {
			config := dns.Config{Addr: addr, Store: a.records, Log: a.log, Count: a.metrics.query, Serving: func(serves bool) {
				change := int32(-1)
				if serves {
					change = 1
				}
				a.named.Store(int(up.Add(change)) == len(addrs))
			}}
			group.Go(func() error { return dns.Serve(serving, config) })
		}
		for serving.Err() == nil && slices.Equal(a.dnsAddrs(), addrs) {
			pause(serving, dnsAddrRetry)
		}
		stop()
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

func (a *Agent) dnsAddrs() []netip.AddrPort {
	if a.config.DNSListen.IsValid() {
		return []netip.AddrPort{a.config.DNSListen}
	}
	in, ok := a.inputs.now()
	if !ok {
		return nil
	}
	var out []netip.AddrPort
	for _, addr := range in.fabric.DNS.Addresses() {
		if addr.Is4() || a.answersIPv6(in.fabric) {
			out = append(out, netip.AddrPortFrom(addr, dnsPort))
		}
	}
	return out
}

// answersIPv6 reports whether pods of this cluster may ask over IPv6.
func (a *Agent) answersIPv6(f *fabric.Fabric) bool {
	own := f.Cluster(a.config.Cluster)
	return own != nil && own.Has(6) && !kernel.NoIPv6()
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
