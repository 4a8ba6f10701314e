// Package unixsocket connects to Unix sockets and to their HTTP servers. A socket's path may be
// longer than a socket address allows.
package unixsocket

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
)

// maxPath is the maximum length of a path in a socket address, in bytes (unix(7)).
const maxPath = 107

// Dial connects to a Unix socket. If the path is too long, it uses the file descriptor of the
// socket's directory.
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

// Client returns an HTTP client for a Unix socket. Each request opens a new connection, because
// another server may listen next time.
func Client(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return Dial(ctx, path) },
	}}
}
