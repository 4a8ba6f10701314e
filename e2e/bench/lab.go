package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"hawser.dev/hawser/lab"
)

// testbed is a lab of the built binaries with a clusterset of testdata.
type testbed struct {
	config
	dir     string
	running []*exec.Cmd // in order of start
}

func newTestbed(ctx context.Context, c config) (*testbed, error) {
	files := filepath.Join(c.root, "e2e/bench/testdata/lab")
	return newTestbedOf(ctx, c, filepath.Join(files, "clusterset.yaml"), filepath.Join(files, "workloads"))
}

// newTestbedOf starts a lab of another clusterset, with more arguments for lab up.
func newTestbedOf(ctx context.Context, c config, topology, workloads string, more ...string) (*testbed, error) {
	dir, err := os.MkdirTemp("", "hwb-") // short: the path of a unix socket has at most 107 bytes
	if err != nil {
		return nil, err
	}
	t := &testbed{config: c, dir: dir}
	_, err = t.hawser(ctx, append([]string{"lab", "up", "-f", topology, "-w", workloads}, more...)...)
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *testbed) labDir() string { return filepath.Join(t.dir, "lab") }

// close ends all programs and the lab, also after a signal.
func (t *testbed) close() error {
	var errs []error
	for i := len(t.running) - 1; i >= 0; i-- {
		cmd := t.running[i]
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
		_ = cmd.Wait() // it reports the signal as an error
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := t.hawser(ctx, "lab", "down")
	return errors.Join(append(errs, err, os.RemoveAll(t.dir))...)
}

func (t *testbed) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(t.bin, "hawser"), args...)
	cmd.Env = append(os.Environ(), "HAWSER_LAB_DIR="+t.labDir(), "PATH="+t.bin+":"+os.Getenv("PATH")+":/usr/sbin:/sbin")
	return cmd
}

// hawser runs one command and returns its output.
func (t *testbed) hawser(ctx context.Context, args ...string) ([]byte, error) {
	return output(t.command(ctx, args...))
}

func output(cmd *exec.Cmd) ([]byte, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s%s", strings.Join(cmd.Args, " "), err, out, stderr.Bytes())
	}
	return out, nil
}

// node runs a program on a node.
func (t *testbed) node(ctx context.Context, node, input string, argv ...string) error {
	cmd := t.command(ctx, append([]string{"lab", "node", node, "--"}, argv...)...)
	cmd.Stdin = strings.NewReader(input)
	_, err := output(cmd)
	return err
}

// pod runs a program in a pod.
func (t *testbed) pod(ctx context.Context, pod string, argv ...string) ([]byte, error) {
	return t.hawser(ctx, append([]string{"lab", "exec", pod, "--"}, argv...)...)
}

// background starts a program that runs until close. It gets its own session, like the agent's
// tunnels: the kernel divides processor time by session (sched(7), autogroup), and both sides of
// a comparison must get the same share.
func (t *testbed) background(args ...string) error {
	cmd := t.command(context.Background(), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	t.running = append(t.running, cmd)
	return nil
}

// lookup queries the address of a name in a pod until it has one.
func (t *testbed) lookup(ctx context.Context, pod, name string) (address string, err error) {
	err = within(ctx, 10*time.Second, func() error {
		out, err := t.pod(ctx, pod, "dig", "+short", name)
		if address = strings.TrimSpace(string(out)); err == nil && address == "" {
			err = fmt.Errorf("%s has no address yet", name)
		}
		return err
	})
	return address, err
}

func (t *testbed) status(ctx context.Context) (s lab.Status, err error) {
	out, err := t.hawser(ctx, "lab", "status", "-o", "json")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(out, &s)
}

// self returns the path of this program, which also runs inside pods.
func self() (string, error) { return os.Executable() }

// within repeats a probe until it succeeds.
func within(ctx context.Context, limit time.Duration, probe func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := probe()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", limit, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
