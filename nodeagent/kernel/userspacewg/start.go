package userspacewg

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"hawser.dev/hawser/nodeagent/kernel/childprocess"
)

// socketDir is the directory of the sockets of userspace devices. It is fixed in wgctrl and in
// wireguard-go.
const socketDir = "/var/run/wireguard"

// startTimeout bounds the start of a process, and the wait for a previous process to end.
const startTimeout = 10 * time.Second

// Launcher starts the processes: this executable with the arguments "wireguard NAME". Its main
// function must call Serve.
type Launcher struct {
	// LogDir is the directory of NAME.log with the errors of the process. They are discarded if
	// it is empty or not writable.
	LogDir string
}

// Start starts the process of a device in the current network namespace. It returns when the
// control socket responds. The process outlives the caller.
func (l Launcher) Start(ctx context.Context, name string) error {
	if err := l.awaitFree(ctx, name); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own executable: %w", err)
	}
	cmd := exec.Command(self, "wireguard", name)
	cmd.Dir = "/"
	_, err = childprocess.Command{
		Name: "wireguard process of " + name, Cmd: cmd, Exec: startWithPriority, Log: logFile(l.LogDir, name), Timeout: startTimeout,
		Ready: func(ctx context.Context) error {
			return childprocess.Poll(ctx, func() bool { return l.Alive(name) && isLink(name) })
		},
	}.Start(ctx)
	return err
}

// awaitFree waits for the end of a previous process whose device is already gone.
func (l Launcher) awaitFree(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := childprocess.Poll(ctx, func() bool { return !l.Alive(name) }); err != nil {
		return fmt.Errorf("another process serves %s, perhaps in another network namespace: %w", socketPath(name), err)
	}
	return nil
}

func socketPath(name string) string { return filepath.Join(socketDir, name+".sock") }

// logFile returns the log file of a device; empty if dir is empty.
func logFile(dir, name string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name+".log")
}

func isLink(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

// Alive reports whether a process replies on the device's control socket.
func (Launcher) Alive(name string) bool {
	c, err := net.DialTimeout("unix", socketPath(name), time.Second)
	if err != nil {
		return false
	}
	return c.Close() == nil
}
