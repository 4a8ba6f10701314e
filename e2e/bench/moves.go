package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// move is a line of an agent's log: the agent moved a cluster's traffic to another link.
type move struct {
	node    string
	at      time.Time
	cluster string // remote cluster; empty if the line has none
}

// moves returns the moves in the logs of both ends' agents.
func (b *failoverLab) moves() ([]move, error) {
	var all []move
	for _, id := range b.ids(stallNear, stallFar) {
		other := stallFar
		if b.nodes[id].Cluster == stallFar {
			other = stallNear
		}
		raw, err := os.ReadFile(filepath.Join(b.nodes[id].Dir, "agent.log"))
		if err != nil {
			return nil, fmt.Errorf("read log of %s: %w", id, err)
		}
		for _, m := range movesIn(raw) {
			if m.cluster == other {
				m.node = id
				all = append(all, m)
			}
		}
	}
	return all, nil
}

// movesIn returns the lines of slog's text format with the message "moved".
func movesIn(raw []byte) []move {
	var out []move
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		fields := map[string]string{}
		for line != "" {
			key, rest, found := strings.Cut(strings.TrimLeft(line, " "), "=")
			if !found {
				break
			}
			var value string
			if strings.HasPrefix(rest, `"`) {
				// A quoted value has Go's syntax, which is valid JSON here.
				d := json.NewDecoder(strings.NewReader(rest))
				if d.Decode(&value) != nil {
					break
				}
				line = rest[d.InputOffset():]
			} else {
				value, line, _ = strings.Cut(rest, " ")
			}
			fields[key] = value
		}
		at, err := time.Parse(time.RFC3339Nano, fields["time"])
		if err != nil || fields["msg"] != "moved" {
			continue
		}
		out = append(out, move{at: at, cluster: fields["cluster"]})
	}
	return out
}

// movedBetween returns for each node the time from a fault to its first move before the heal.
// The log has a precision of milliseconds.
func movedBetween(all []move, hit, heal time.Time) map[string]time.Duration {
	out := map[string]time.Duration{}
	for _, m := range all {
		took := m.at.Sub(hit.Truncate(time.Millisecond))
		if first, ok := out[m.node]; took < 0 || m.at.After(heal) || ok && first <= took {
			continue
		}
		out[m.node] = took
	}
	return out
}

// saveRaw writes raw measurements to the directory of -keep.
func (c config) saveRaw(name string, value any) error {
	if c.save == "" {
		return nil
	}
	raw, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(c.save, 0o755), os.WriteFile(filepath.Join(c.save, name+".json"), raw, 0o644))
}

// saveLogs copies the agents' logs to the directory of -keep.
func (b *failoverLab) saveLogs(c config, name string) error {
	if c.save == "" {
		return nil
	}
	var errs []error
	for id, n := range b.nodes {
		in, err := os.Open(filepath.Join(n.Dir, "agent.log"))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out, err := os.Create(filepath.Join(c.save, name+"-"+strings.ReplaceAll(id, "/", "-")+".log"))
		if err == nil {
			_, err = io.Copy(out, in)
			err = errors.Join(err, out.Close())
		}
		errs = append(errs, err, in.Close())
	}
	return errors.Join(errs...)
}
