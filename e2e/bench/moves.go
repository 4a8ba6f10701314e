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

// move is a line of an agent's log that says that it sends a cluster's traffic
// over another link.
type move struct {
	node    string
	at      time.Time
	cluster string // whose traffic; empty where the line does not say
}

// moves reads the logs of the agents of both ends.
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

// movesIn finds the lines of slog's text format whose message is "moved".
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
				// A value in quotes is written as Go does, which JSON can read here.
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

// movedBetween gives for each node the time from a fault to its first move
// before the fault was mended. The log has milliseconds, the clock more.
func movedBetween(all []move, hit, heal time.Time) map[string]time.Duration {
	out := map[string]time.Duration{}
	for _, m := range all {
		took := m.at.Sub(hit.Truncate(time.Millisecond))
		if first, known := out[m.node]; took < 0 || m.at.After(heal) || known && first <= took {
			continue
		}
		out[m.node] = took
	}
	return out
}

// keepRaw writes what was measured to the folder of -keep, for a closer look.
func (c config) keepRaw(name string, what any) error {
	if c.keep == "" {
		return nil
	}
	raw, err := json.MarshalIndent(what, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(c.keep, 0o755), os.WriteFile(filepath.Join(c.keep, name+".json"), raw, 0o644))
}

// keepLogs copies the agents' logs there.
func (b *failoverLab) keepLogs(c config, name string) error {
	if c.keep == "" {
		return nil
	}
	var errs []error
	for id, n := range b.nodes {
		in, err := os.Open(filepath.Join(n.Dir, "agent.log"))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out, err := os.Create(filepath.Join(c.keep, name+"-"+strings.ReplaceAll(id, "/", "-")+".log"))
		if err == nil {
			_, err = io.Copy(out, in)
			err = errors.Join(err, out.Close())
		}
		errs = append(errs, err, in.Close())
	}
	return errors.Join(errs...)
}
