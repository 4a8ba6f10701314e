package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"hawser.dev/hawser/lab/netnsexec"
	"hawser.dev/hawser/lab/workload"
)

// Change is a request to change the workloads of one cluster. It uses exactly one of the groups of
// fields.
type Change struct {
	Cluster string `json:"cluster"`
	// Apply and Delete are manifests. File is their source in errors.
	Apply  string `json:"apply,omitempty"`
	Delete string `json:"delete,omitempty"`
	File   string `json:"file,omitempty"`
	// Object is an object to delete, as NAMESPACE/KIND/NAME or Namespace/NAME. If Replicas is
	// set, the object is scaled.
	Object   string `json:"object,omitempty"`
	Replicas *int32 `json:"replicas,omitempty"`
	// Pod is a pod, as NAMESPACE/NAME, whose readiness changes to Ready.
	Pod   string `json:"pod,omitempty"`
	Ready bool   `json:"ready,omitempty"`
}

// handler returns the handler of the daemon's API.
func (d *daemon) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) { reply(w, d.status(r.Context()), nil) })
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("from")) // 0, all events, if not a number
		reply(w, d.events.from(n), nil)
	})
	mux.HandleFunc("GET /place", func(w http.ResponseWriter, r *http.Request) {
		found, err := d.find(r.URL.Query().Get("target"))
		reply(w, found, err)
	})
	handle(mux, "POST /up", func(struct{}) error { d.clearFaults(); d.converge(); return d.lastErr }, d)
	handle(mux, "POST /change", d.change, d)
	handle(mux, "POST /fault", d.fault, d)
	return mux
}

// handle registers a request that changes the lab. Such requests run one at a time.
func handle[T any](mux *http.ServeMux, pattern string, handler func(T) error, d *daemon) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var body T
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<20)).Decode(&body); err != nil {
			reply(w, nil, fmt.Errorf("read request: %w", err))
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		reply(w, struct{}{}, handler(body))
	})
}

func reply(w http.ResponseWriter, body any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		body = map[string]string{"error": err.Error()}
	}
	_ = json.NewEncoder(w).Encode(body) // the client disconnected
}

// change changes the workloads. If an object cannot be placed, it changes nothing. The caller holds
// d.mu.
func (d *daemon) change(c Change) error {
	if _, known := d.topology.cluster(c.Cluster); !known {
		return fmt.Errorf("cluster %q not found (clusters: %s)", c.Cluster, d.topology.names())
	}
	if c.Pod != "" {
		id := c.Cluster + "/" + c.Pod
		if !slices.ContainsFunc(d.world.pods(), func(p pod) bool { return p.id() == id }) {
			return fmt.Errorf("pod %q not found: see hawser lab status", id)
		}
		d.state.Ready[id] = c.Ready
		d.converge()
		return d.lastErr
	}
	have := d.sets[c.Cluster]
	if have == nil {
		have = &workload.Set{}
	}
	changed := &workload.Set{}
	if err := changed.Apply(have.Objects()); err != nil {
		return err
	}
	if err := applyChange(changed, c); err != nil {
		return err
	}
	if err := d.dryRun(c.Cluster, changed); err != nil {
		return err
	}
	raw, err := workload.Write(changed.Objects())
	if err != nil {
		return err
	}
	if _, err := writeFile(d.layout.objects(c.Cluster), raw, 0o644); err != nil {
		return err
	}
	d.sets[c.Cluster] = changed
	d.converge()
	return d.lastErr
}

// unknownTo returns the objects that are missing in a set.
func unknownTo(set *workload.Set, objects []workload.Object) []workload.Object {
	known := map[workload.Key]bool{}
	for _, o := range set.Objects() {
		known[o.Key] = true
	}
	return slices.DeleteFunc(slices.Clone(objects), func(o workload.Object) bool { return known[o.Key] })
}

func applyChange(set *workload.Set, c Change) error {
	switch {
	case c.Apply != "":
		objects, _, err := workload.Parse(c.File, []byte(c.Apply))
		if err != nil {
			return err
		}
		workload.SetCreationTime(unknownTo(set, objects), time.Now())
		return set.Apply(objects)
	case c.Delete != "":
		objects, _, err := workload.Parse(c.File, []byte(c.Delete))
		if err != nil {
			return err
		}
		var keys []workload.Key
		for _, o := range objects {
			keys = append(keys, o.Key)
		}
		return set.Delete(keys)
	case c.Object == "":
		return errors.New("nothing to change")
	}
	parts := strings.Split(c.Object, "/")
	if len(parts) == 2 {
		parts = append([]string{""}, parts...)
	}
	if len(parts) != 3 {
		return fmt.Errorf("object %q: it is NAMESPACE/KIND/NAME", c.Object)
	}
	kind, err := workload.ParseKind(parts[1])
	if err != nil {
		return err
	}
	key := workload.Key{Kind: kind, Namespace: parts[0], Name: parts[2]}
	if c.Replicas != nil {
		return set.Scale(key, *c.Replicas)
	}
	return set.Delete([]workload.Key{key})
}

// dryRun computes a plan with the changed workloads and a copy of the assignments.
func (d *daemon) dryRun(cluster string, set *workload.Set) error {
	raw, err := json.Marshal(d.state)
	if err != nil {
		return fmt.Errorf("copy state: %w", err)
	}
	copied := newState()
	copied.Underlay, copied.Overlay = d.state.Underlay, d.state.Overlay
	if err := json.Unmarshal(raw, copied); err != nil {
		return fmt.Errorf("copy state: %w", err)
	}
	w, err := plan(d.topology, map[string]*workload.Set{cluster: set}, d.config.Workers, copied)
	if err != nil {
		return err
	}
	var errs []error
	for _, problem := range w.problems {
		if d.world == nil || !slices.Contains(d.world.problems, problem) {
			errs = append(errs, errors.New(problem))
		}
	}
	return errors.Join(errs...)
}

// Underlay is the target of Client.Exec for programs between the nodes. Every link of a node has an
// end there; NodeStatus.Links has its name.
const Underlay = "underlay"

// find returns the environment of a program in a pod (CLUSTER/NAMESPACE/POD), on a node
// (CLUSTER/NODE) or in the underlay (Underlay).
func (d *daemon) find(target string) (netnsexec.Exec, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out netnsexec.Exec
	if target == Underlay {
		return netnsexec.Exec{Net: d.underlay.path}, nil
	}
	if strings.Count(target, "/") == 1 {
		n, err := d.findNode(target)
		if err != nil {
			return out, err
		}
		m := d.nodes[n.id()]
		if m == nil {
			return out, fmt.Errorf("node %s does not run: hawser lab fault power-on %s", target, target)
		}
		return d.nodeExec(n, m.ns.path, nil), nil
	}
	for _, m := range d.nodes {
		c := m.pods[target]
		if c == nil {
			continue
		}
		return d.podExec(m, c), nil
	}
	if d.world != nil {
		for _, p := range d.world.pods() {
			if p.id() == target {
				return out, fmt.Errorf("pod %s does not run: its node %s/%s is off (hawser lab fault power-on)", target, p.cluster, p.node)
			}
		}
	}
	return out, fmt.Errorf("pod %q not found: write CLUSTER/NAMESPACE/POD, as hawser lab status does", target)
}
