// Package netnsexec creates network namespaces pinned by a file, runs functions and programs in
// them, and finds their processes (network_namespaces(7), setns(2)). It never uses /run/netns, so
// its namespaces are separate from those of ip-netns(8).
package netnsexec

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Prepare prepares dir for namespaces: it mounts dir with shared propagation. Then an unmount also
// applies in other mount namespaces, where a copy of the mount would keep a namespace alive.
func Prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make directory of namespaces: %w", err)
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on itself: %w", dir, err)
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mount %s: %w", dir, err)
	}
	return nil
}

// Create creates a network namespace with lo up, and pins it at path, which must not exist.
func Create(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	_ = file.Close()
	err = onOtherThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", path, "none", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind: %w", err)
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("find lo: %w", err)
		}
		return netlink.LinkSetUp(lo)
	})
	if err != nil {
		return errors.Join(fmt.Errorf("create namespace %s: %w", path, err), Remove(path))
	}
	return nil
}

// Remove unpins the namespace at path, if it exists. The kernel destroys the namespace and its
// links after the exit of the last process in it.
func Remove(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break // not a mount point, or no longer
		}
		if err != nil {
			return fmt.Errorf("unmount namespace %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove namespace %s: %w", path, err)
	}
	return nil
}

// RemoveAll unpins every namespace in dir and undoes Prepare.
func RemoveAll(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		errs = append(errs, Remove(filepath.Join(dir, entry.Name())))
	}
	errs = append(errs, Remove(dir))
	return errors.Join(errs...)
}

// Do runs fn on a thread in the namespace at path. Sockets that fn opens stay in the namespace.
// Goroutines that it starts do not run there.
func Do(path string, fn func() error) error {
	target, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open namespace: %w", err)
	}
	defer target.Close()
	return onOtherThread(func() error {
		if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter namespace %s: %w", path, err)
		}
		return fn()
	})
}

// onOtherThread runs fn, which may change its thread's network namespace, and then restores the
// namespace. If that fails, the thread stays locked: it exits with its goroutine, and no other
// goroutine runs on it.
func onOtherThread(fn func() error) error {
	errs := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		original, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			errs <- err
			return
		}
		defer original.Close()
		result := fn()
		if unix.Setns(int(original.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		errs <- result
	}()
	return <-errs
}

// Inode returns the inode of the namespace at path.
func Inode(path string) (uint64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("read namespace: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("read namespace %s: no inode", path)
	}
	return stat.Ino, nil
}

// Sysctls writes kernel settings (paths below /proc/sys, such as net/ipv4/ip_forward) of the calling
// thread's namespace. It skips settings that the kernel lacks.
func Sysctls(settings map[string]string) error {
	for name, value := range settings {
		err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}
