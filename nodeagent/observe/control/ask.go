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

// askTimeout is for the answer of the agent that runs on this node.
const askTimeout = 5 * time.Second

// Get has the agent that runs on this node answer GET path on its socket. It is false
// when none runs.
func Get(ctx context.Context, socket, path string, answer any) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
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
		return false, fmt.Errorf("ask the running agent at %s: %w", socket, err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return false, fmt.Errorf("read the running agent's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("ask the running agent at %s: it answered %s", socket, resp.Status)
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return false, fmt.Errorf("read the running agent's answer: %w", err)
	}
	return true, nil
}
