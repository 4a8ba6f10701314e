package vm

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed init.sh
var initScript []byte

//go:embed begin.sh
var beginScript []byte

// initramfs returns the initial file system: busybox, the scripts init and begin, the kernel
// modules that they load, and the job.
func (m Machine) initramfs(script string) ([]byte, error) {
	var a archive
	for _, dir := range []string{"bin", "sbin", "modules", "proc", "sys", "dev"} {
		a.add(dir, 0o040755, nil)
	}
	busybox, err := os.ReadFile(m.Busybox)
	if err != nil {
		return nil, fmt.Errorf("read busybox: %w", err)
	}
	a.add("bin/busybox", 0o100755, busybox)
	a.add("init", 0o100755, initScript)
	a.add("begin", 0o100755, beginScript)
	a.add("job", 0o100755, []byte(script))
	files, err := m.order()
	if err != nil {
		return nil, err
	}
	var order []string
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read module: %w", err)
		}
		order = append(order, filepath.Base(file))
		a.add("modules/"+filepath.Base(file), 0o100644, raw)
	}
	a.add("modules/order", 0o100644, []byte(strings.Join(order, "\n")+"\n"))
	a.add("modules/where", 0o100644, []byte(m.Modules+"\n"))
	return a.end(), nil
}

// order returns the files of the initial modules, each after its dependencies.
func (m Machine) order() ([]string, error) {
	version := strings.TrimPrefix(filepath.Base(m.Kernel), "vmlinuz-")
	root := filepath.Dir(filepath.Dir(m.Modules))
	var out []string
	seen := map[string]bool{}
	for _, name := range []string{"virtio_pci", "9pnet_virtio", "9p", "overlay"} {
		raw, err := exec.Command("modprobe", "-S", version, "-d", root, "--show-depends", name).Output()
		if err != nil {
			return nil, fmt.Errorf("find module %s of kernel %s: %w", name, version, err)
		}
		for line := range strings.Lines(string(raw)) {
			file, found := strings.CutPrefix(strings.TrimSpace(line), "insmod ")
			if found && !seen[file] {
				seen[file] = true
				out = append(out, file)
			}
		}
	}
	return out, nil
}

// archive is a cpio archive in the format "newc" (Linux,
// Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	out   bytes.Buffer
	inode int
}

func (a *archive) add(name string, mode uint32, content []byte) {
	a.inode++
	fmt.Fprintf(&a.out, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		a.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	a.out.WriteString(name + "\x00")
	a.pad()
	a.out.Write(content)
	a.pad()
}

// pad pads the archive with zeros to a multiple of four bytes.
func (a *archive) pad() { a.out.Write(make([]byte, (4-a.out.Len()%4)%4)) }

func (a *archive) end() []byte {
	a.add("TRAILER!!!", 0, nil)
	return a.out.Bytes()
}
