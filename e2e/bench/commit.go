package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	commitRounds = 10
	commitTime   = 2 * time.Second
	webURL       = "http://web.bench.svc.clusterset.local/"
	webExport    = "  - name: web\n    namespace: bench\n    clusters: [b2]\n    ports: [{name: http, port: 80, protocol: TCP}]\n"
)

func measureCommit(ctx context.Context, c config) (s section, err error) {
	t, err := newTestbed(ctx, c)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	if err := t.awaitGone(ctx); err != nil {
		return s, err
	}
	var there, gone []time.Duration
	for i := range commitRounds {
		up, err := t.appears(ctx)
		if err != nil {
			return s, fmt.Errorf("round %d: %w", i, err)
		}
		down, err := t.disappears(ctx)
		if err != nil {
			return s, fmt.Errorf("round %d: %w", i, err)
		}
		there, gone = append(there, up), append(gone, down)
	}
	m := median(there)
	return section{
		title: "From a commit to a packet",
		how: fmt.Sprintf(`
A lab of two clusters. A pod of one asks for a service of the other every 5 ms, each time with a new lookup and connection. The
clock runs from just
before `+"`git commit`"+` of an export to the first HTTP answer: git, the reconciler (load, allocate, render, publish), the sync
that stands for Flux, four agents (two
gateways, two workers), DNS, handshake, request. The second row is the commit that removes the export, until the name is gone. Of
%d rounds.`, commitRounds),
		rows: []row{
			row{what: "commit to first answer, median", figure: millis(m), reference: millis(commitTime) + " (target)",
				ratio: fmt.Sprintf("%.2f", m.Seconds()/commitTime.Seconds())}.aim(millis(commitTime), m <= commitTime),
			{what: "slowest round", figure: millis(quantile(there, 1)), reference: millis(m) + " (median)",
				ratio: fmt.Sprintf("%.2f", quantile(there, 1).Seconds()/m.Seconds())},
			{what: "commit to name gone, median", figure: millis(median(gone)), reference: millis(m) + " (first answer)",
				ratio: fmt.Sprintf("%.2f", median(gone).Seconds()/m.Seconds())},
		},
		after: `
A round of just above 1 s is one whose first SYN was lost and sent again: the name was answered before the gateway of the other
cluster had the export.`,
	}, nil
}

// appears commits the export and gives the time to the first answer.
func (t *testbed) appears(ctx context.Context) (time.Duration, error) {
	me, err := self()
	if err != nil {
		return 0, err
	}
	cmd := t.command(ctx, "lab", "exec", "b1/bench/worker", "--", me, "knock", webURL)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "waiting" {
		return 0, errors.Join(fmt.Errorf("web answered before it was exported: %q", lines.Text()), cmd.Process.Kill(), cmd.Wait())
	}
	begin, err := t.commit(ctx, func(topology string) string { return topology + webExport })
	if err != nil {
		return 0, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	lines.Scan()
	at, err := strconv.ParseInt(lines.Text(), 10, 64)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return 0, fmt.Errorf("no answer from %s: %w", webURL, err)
	}
	return time.Unix(0, at).Sub(begin), nil
}

// disappears commits its removal and gives the time until the name is gone.
func (t *testbed) disappears(ctx context.Context) (time.Duration, error) {
	begin, err := t.commit(ctx, func(topology string) string { return strings.TrimSuffix(topology, webExport) })
	if err != nil {
		return 0, err
	}
	err = t.awaitGone(ctx)
	return time.Since(begin), err
}

// awaitGone returns when the name server says that there is no web.
func (t *testbed) awaitGone(ctx context.Context) error {
	return within(ctx, 20*time.Second, func() error {
		out, err := t.pod(ctx, "b1/bench/worker", "dig", "web.bench.svc.clusterset.local")
		if err == nil && !strings.Contains(string(out), "NXDOMAIN") {
			err = errors.New("web still has an address")
		}
		return err
	})
}

// commit edits the topology as a person would, and gives the time just before
// the commit.
func (t *testbed) commit(ctx context.Context, edit func(string) string) (time.Time, error) {
	repo := filepath.Join(t.labDir(), "repo")
	file := filepath.Join(repo, "clusterset.yaml")
	raw, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, err
	}
	if err := os.WriteFile(file, []byte(edit(string(raw))), 0o644); err != nil {
		return time.Time{}, err
	}
	begin := time.Now()
	cmd := exec.CommandContext(ctx, "git", "-C", repo, "-c", "user.name=bench", "-c", "user.email=bench@example.org",
		"commit", "-qam", "change web")
	_, err = output(cmd)
	return begin, err
}
