// Package lab runs a whole clusterset on one Linux machine from a topology and Kubernetes
// manifests. Every node and pod is a network namespace. The reconciler and the agents are the real
// programs. Only the underlay between the nodes is simulated.
//
// One process, the daemon (Serve), owns the state of the lab. A Client sends requests to it over a
// unix socket. Up creates a lab. Down removes a lab completely, even if its daemon was killed.
package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"hawser.dev/hawser/internal/atomicfile"
)

// DefaultDir is the default directory of a lab, without HAWSER_LAB_DIR and --dir.
const DefaultDir = "/run/hawser/lab"

// DirEnv is the environment variable that names the lab's directory.
const DirEnv = "HAWSER_LAB_DIR"

// markEnv is in the environment of every process of a lab. Its value is the lab's ID, by which Down
// identifies the processes.
const markEnv = "HAWSER_LAB_ID"

// DirFrom returns the directory of the lab: the flag, the environment variable, or the default.
func DirFrom(flag, env string) (string, error) {
	dir := DefaultDir
	if env != "" {
		dir = env
	}
	if flag != "" {
		dir = flag
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find directory of the lab: %w", err)
	}
	// Unix sockets have at most 107 bytes (unix(7)). The longest path is below
	// nodes/<cluster>/<node>/run, and is used through a short name.
	if len(abs) > 80 {
		return "", fmt.Errorf("directory of the lab %s: longer than 80 bytes, unix sockets below it would not fit: choose another --dir", abs)
	}
	return abs, nil
}

// Layout returns the paths below a lab's directory.
type Layout struct{ Dir string }

func (l Layout) path(parts ...string) string {
	return filepath.Join(append([]string{l.Dir}, parts...)...)
}

// Repo returns the topology's git repository.
func (l Layout) Repo() string { return l.path("repo") }

// Topology returns the topology file in the work tree of Repo.
func (l Layout) Topology() string { return l.path("repo", topologyFile) }

// Socket returns the socket of the daemon's API.
func (l Layout) Socket() string { return l.path("lab.sock") }

// RootKey returns the file of the lab's root key.
func (l Layout) RootKey() string { return l.path("keys", "root") }

// Node returns the directory of a node: fabric, keys, facts, state, run (its /run, with agent.sock)
// and agent.log. Its name is the node's name, or <cluster>.<node> if another cluster had a node
// with that name first.
func (l Layout) Node(name string) string { return l.path("nodes", name) }

func (l Layout) config() string                 { return l.path("lab.json") }
func (l Layout) underlay() string               { return l.path("underlay.yaml") }
func (l Layout) state() string                  { return l.path("state.json") }
func (l Layout) daemonLog() string              { return l.path("daemon.log") }
func (l Layout) daemon() string                 { return l.path("daemon.json") }
func (l Layout) reconcilerLog() string          { return l.path("reconciler.log") }
func (l Layout) reconcilerState() string        { return l.path("reconciler.json") }
func (l Layout) hosts() string                  { return l.path("hosts") }
func (l Layout) namespaces() string             { return l.path("ns") }
func (l Layout) objects(cluster string) string  { return l.path("objects", cluster+".yaml") }
func (l Layout) identity(cluster string) string { return l.path("keys", cluster+".agekey") }

func (l Layout) resolv(cluster, space string) string { return l.path("resolv", cluster+"."+space) }

// Config is the configuration of a lab. It never changes.
type Config struct {
	ID       string   `json:"id"`      // random; marks the lab's processes and namespaces
	Workers  int      `json:"workers"` // nodes per cluster in addition to the gateways
	Overlay  bool     `json:"overlay"` // whether pods are on one network; see UpOptions
	NoHawser bool     `json:"bare"`    // only nodes, pods and services: no reconciler, no agents
	Hawser   string   `json:"hawser"`  // path of the hawser program
	Agent    string   `json:"agent"`   // path of the hawser-agent program
	Parents  []string `json:"parents"` // parent directories that up created, innermost first
}

// ErrNoLab is returned if the directory has no lab.
var ErrNoLab = errors.New("no lab here: run hawser lab up")

func readConfig(l Layout) (Config, error) {
	var c Config
	raw, err := os.ReadFile(l.config())
	if errors.Is(err, os.ErrNotExist) {
		return c, fmt.Errorf("%s: %w", l.Dir, ErrNoLab)
	}
	if err != nil {
		return c, fmt.Errorf("read lab: %w", err)
	}
	if err := json.Unmarshal(raw, &c); err != nil || c.ID == "" {
		return c, fmt.Errorf("read lab: %s is broken: %w", l.config(), errors.Join(err, errors.New("no id")))
	}
	return c, nil
}

// namespace returns the file that pins a namespace of the lab.
func (l Layout) namespace(c Config, name string) string { return l.path("ns", c.ID+"-"+name) }

// writeFile replaces a file atomically: readers see the old or the new content. It reports whether
// the content changed.
func writeFile(path string, content []byte, mode os.FileMode) (bool, error) {
	if have, err := os.ReadFile(path); err == nil && string(have) == string(content) {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	if err := atomicfile.Replace(path, content, mode); err != nil {
		return false, err
	}
	return true, nil
}
