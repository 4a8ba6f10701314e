package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"time"

	"hawser.dev/hawser/internal/unixsocket"
)

// getTimeout is the maximum time of a request to the agent on this node.
const getTimeout = 5 * time.Second

// Get sends GET path to the socket of the agent on this node, and decodes the JSON response into
// answer. It returns false if no agent runs.
func Get(ctx context.Context, socket, path string, answer any) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return false, err
	}
	resp, err := unixsocket.Client(socket).Do(req)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("query the running agent at %s: %w", socket, err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return false, fmt.Errorf("read response of the running agent: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("query the running agent at %s: status %s", socket, resp.Status)
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return false, fmt.Errorf("decode response of the running agent: %w", err)
	}
	return true, nil
}
