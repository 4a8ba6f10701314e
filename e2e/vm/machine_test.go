// Package vm boots a Debian kernel in QEMU and runs a shell script in it. The script has read-only
// access to the root file system of the host. The jobs test what a host kernel without WireGuard,
// ESP or VRF cannot run.
package vm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// Machine is a kernel with the programs and options that boot it; see hack/setup-vm.sh.
type Machine struct {
	Kernel  string // vmlinuz
	Modules string // lib/modules of that kernel
	Busybox string // path of a static busybox
	QEMU    string
	Memory  int    // MiB
	Accel   string // tcg, which works on every host, or kvm, which is ten times as fast
	Options string // additional kernel parameters
	Console string // file for the console's output; empty: none
}

// KernelDir returns the directory of hack/setup-vm.sh with the kernel.
func KernelDir() string {
	if dir := os.Getenv("HAWSER_VM_DIR"); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = "/root/.cache"
	}
	return filepath.Join(cache, "hawser", "vm")
}

// Find finds the programs and files of a machine. The error names the missing ones.
func Find(dir string, look func(program string) (string, error)) (Machine, error) {
	m := Machine{Memory: 2048, Accel: cmp.Or(os.Getenv("HAWSER_VM_ACCEL"), "tcg")}
	var missing []string
	for name, into := range map[string]*string{"qemu-system-x86_64": &m.QEMU, "busybox": &m.Busybox} {
		path, err := look(name)
		if err != nil {
			missing = append(missing, name)
		}
		*into = path
	}
	kernels, _ := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*")) // the pattern is valid
	if len(kernels) != 1 {
		return m, fmt.Errorf("needs one kernel in %s (hack/setup-vm.sh)", dir)
	}
	if len(missing) > 0 {
		return m, fmt.Errorf("needs %s (hack/setup-vm.sh)", strings.Join(missing, " and "))
	}
	m.Kernel, m.Modules = kernels[0], filepath.Join(dir, "lib", "modules")
	return m, nil
}

// Failure is the error of a script with a nonzero exit code.
type Failure struct {
	Code   int
	Output string
}

// Error returns the error with the end of the output.
func (f *Failure) Error() string {
	return fmt.Sprintf("the script in the virtual machine ended with %d:\n%s", f.Code, f.Output)
}

// Run boots the machine, runs a bash script as root, and returns its output. It stops the machine
// before it returns, also when ctx is done.
func (m Machine) Run(ctx context.Context, script string) (string, error) {
	dir, err := os.MkdirTemp("", "hwvm-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	image, err := m.initramfs(script)
	if err != nil {
		return "", err
	}
	first := filepath.Join(dir, "initramfs")
	if err := os.WriteFile(first, image, 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, m.QEMU, "-accel", m.Accel, "-cpu", "max,arch-capabilities=off", "-smp", "1", "-m", strconv.Itoa(m.Memory),
		"-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", m.Kernel, "-initrd", first, "-append", strings.TrimSpace("console=ttyS0 quiet loglevel=1 panic=-1 random.trust_cpu=on "+m.Options),
		"-device", "virtio-rng-pci",
		"-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // end with this process
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if m.Console != "" {
		file, err := os.Create(m.Console)
		if err != nil {
			return "", fmt.Errorf("log the console: %w", err)
		}
		defer file.Close()
		cmd.Stdout = io.MultiWriter(&out, file)
	}
	ended := cmd.Run()
	if ctx.Err() != nil {
		return out.String(), fmt.Errorf("the virtual machine: %w\n%s", ctx.Err(), tail(out.String()))
	}
	text, code, err := result(out.String())
	if err != nil {
		return text, errors.Join(err, ended, errors.New(tail(complaint.String())), errors.New(tail(out.String())))
	}
	if code != 0 {
		return text, &Failure{Code: code, Output: tail(text)}
	}
	return text, nil
}

var exit = regexp.MustCompile(`(?m)^hawser-vm: exit (\d+)\s*$`)

// result returns the script's output and exit code from the output of the console.
func result(console string) (text string, code int, err error) {
	console = strings.ReplaceAll(console, "\r\n", "\n")
	_, text, begun := strings.Cut(console, "hawser-vm: begin\n")
	at := exit.FindStringSubmatchIndex(text)
	switch {
	case !begun:
		return "", 0, errors.New("the virtual machine did not come to the script")
	case at == nil:
		return text, 0, errors.New("the virtual machine ended within the script")
	}
	code, err = strconv.Atoi(text[at[2]:at[3]])
	return text[:at[0]], code, err
}

// tail returns the end of a text, which contains the errors.
func tail(text string) string {
	const most = 16 << 10
	return text[max(0, len(text)-most):]
}
