package netnsexec

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Exec is a program to run in a network namespace, with its own versions of some files.
type Exec struct {
	Net      string   // file that pins the network namespace
	Resolv   string   // file to mount at /etc/resolv.conf; empty = the host's
	Hosts    string   // file to mount at /etc/hosts; empty = the host's
	Run      string   // directory to mount at /run; empty = the host's
	KeepDir  string   // directory below Run that stays visible at its own path
	BootID   string   // file to mount at /proc/sys/kernel/random/boot_id; empty = the host's
	Hostname string   // empty = the host's; truncated to 63 bytes
	Argv     []string // program and arguments
}

// Args returns the arguments that ParseExec parses.
func (e Exec) Args() []string {
	var args []string
	for _, f := range []struct{ name, value string }{
		{"--net", e.Net}, {"--resolv", e.Resolv}, {"--hosts", e.Hosts},
		{"--run", e.Run}, {"--keep", e.KeepDir}, {"--boot-id", e.BootID}, {"--hostname", e.Hostname},
	} {
		if f.value != "" {
			args = append(args, f.name, f.value)
		}
	}
	return append(append(args, "--"), e.Argv...)
}

// ParseExec parses the arguments from Args.
func ParseExec(args []string) (Exec, error) {
	var e Exec
	flags := flag.NewFlagSet("nsexec", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&e.Net, "net", "", "")
	flags.StringVar(&e.Resolv, "resolv", "", "")
	flags.StringVar(&e.Hosts, "hosts", "", "")
	flags.StringVar(&e.Run, "run", "", "")
	flags.StringVar(&e.KeepDir, "keep", "", "")
	flags.StringVar(&e.BootID, "boot-id", "", "")
	flags.StringVar(&e.Hostname, "hostname", "", "")
	if err := flags.Parse(args); err != nil {
		return Exec{}, fmt.Errorf("read nsexec arguments: %w", err)
	}
	e.Argv = flags.Args()
	if e.Net == "" || len(e.Argv) == 0 {
		return Exec{}, errors.New("usage: nsexec --net FILE [flags] -- CMD [ARGS...]")
	}
	return e, nil
}

// Replace replaces the calling process by the program, with the same PID and standard streams. It
// returns only on failure. env is the program's environment.
func (e Exec) Replace(env []string) error {
	runtime.LockOSThread() // never unlocked: this thread becomes the program
	path, err := lookPath(e.Argv[0], env)
	if err != nil {
		return err
	}
	target, err := os.Open(e.Net)
	if err != nil {
		return fmt.Errorf("open namespace: %w", err)
	}
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace %s: %w", e.Net, err)
	}
	_ = target.Close()
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("unshare mounts: %w", err)
	}
	if e.Hostname != "" {
		if err := unix.Sethostname([]byte(hostName(e.Hostname))); err != nil {
			return fmt.Errorf("set host name: %w", err)
		}
	}
	if err := e.mounts(); err != nil {
		return err
	}
	if err := unix.Exec(path, e.Argv, env); err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	return nil
}

// hostName truncates a name like the kubelet. Linux allows 64 bytes and DNS labels have 63, but
// node and pod names may be longer.
func hostName(name string) string {
	const maxLength = 63
	return strings.TrimRight(name[:min(len(name), maxLength)], "-.")
}

// mounts mounts the program's files. The mounts do not propagate to the host; unmounts on the host
// propagate here (see Prepare).
func (e Exec) mounts() error {
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("detach mounts: %w", err)
	}
	// /sys/class/net shows the namespace of the process that mounted it. If the mount is
	// forbidden, the program sees the host's, which few programs read.
	if unix.Unmount("/sys", unix.MNT_DETACH) == nil {
		_ = unix.Mount("sysfs", "/sys", "sysfs", 0, "")
	}
	targets := map[string]string{}
	for target, source := range map[string]string{"/etc/resolv.conf": e.Resolv, "/etc/hosts": e.Hosts, "/proc/sys/kernel/random/boot_id": e.BootID} {
		if source == "" {
			continue
		}
		resolved, err := filepath.EvalSymlinks(target)
		if err != nil {
			return fmt.Errorf("cover %s: %w (an empty file there is enough)", target, err)
		}
		targets[resolved] = source
	}
	if e.Run != "" {
		if err := e.hideRun(targets); err != nil {
			return err
		}
	}
	for target, source := range targets {
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s at %s: %w", source, target, err)
		}
	}
	return nil
}

// hideRun mounts a directory over /run. It adds mount points for paths that must stay visible below
// /run: the directory KeepDir, and the targets of links in /etc.
func (e Exec) hideRun(targets map[string]string) error {
	for target := range targets {
		if !strings.HasPrefix(target, "/run/") {
			continue
		}
		path := filepath.Join(e.Run, strings.TrimPrefix(target, "/run"))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make mount point: %w", err)
		}
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			return fmt.Errorf("make mount point: %w", err)
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	keepInRun := strings.HasPrefix(e.KeepDir, "/run/") || strings.HasPrefix(e.KeepDir, "/var/run/")
	if !keepInRun {
		return mountRun(e.Run)
	}
	fd, err := unix.Open(e.KeepDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", e.KeepDir, err)
	}
	defer unix.Close(fd)
	if err := mountRun(e.Run); err != nil {
		return err
	}
	if err := os.MkdirAll(e.KeepDir, 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), e.KeepDir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep %s: %w", e.KeepDir, err)
	}
	for target, source := range targets {
		if name, inRun := strings.CutPrefix(source, "/run/"); inRun && !strings.HasPrefix(source, e.KeepDir+"/") {
			return fmt.Errorf("keep %s: /run/%s is hidden", target, name)
		}
	}
	return nil
}

func mountRun(dir string) error {
	if err := unix.Mount(dir, "/run", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s at /run: %w", dir, err)
	}
	if real, err := filepath.EvalSymlinks("/var/run"); err != nil || real == "/run" {
		return nil
	}
	// Use the path below /run, because dir may be hidden now.
	if err := unix.Mount("/run", "/var/run", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount /run at /var/run: %w", err)
	}
	return nil
}

// lookPath finds the program in the PATH of env.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, v := range env {
		dirs, ok := strings.CutPrefix(v, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(dirs) {
			if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return found, nil
			}
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}
