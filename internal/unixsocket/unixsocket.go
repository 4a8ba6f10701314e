// Package unixsocket reaches unix sockets, also those whose path is longer than an address,
// and servers of HTTP behind them.
package unixsocket

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
)

// maxPath is what a socket's address has room for (unix(7)).
const maxPath = 107

// Dial connects to a socket; to one with a long path through its folder's descriptor.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	if len(path) <= maxPath {
		return d.DialContext(ctx, "unix", path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}

// Client makes a client whose every request is a connection of its own to a socket: the
// server may be another one next time.
func Client(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return Dial(ctx, path) },
	}}
}
