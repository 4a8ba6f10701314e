package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/internal/statefile"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
)

// DefaultSysctls is the directory of the kernel settings.
const DefaultSysctls = "/proc/sys"

// Sysctls is the kind of the kernel settings that Hawser changed. A file stores the previous
// values; removing a setting restores its value.
type Sysctls struct {
	ns        *Namespace
	directory string // of the file with the previous values
	saved     *statefile.File[map[string]string]
	root      string
	// unsaved holds previous values that could not be written to the file. Their settings are
	// not observed, so each pass tries to save them again.
	unsaved map[string]string
}

// NewSysctls returns the kind. The file at path stores the previous values.
func NewSysctls(ns *Namespace, path string) *Sysctls {
	directory, name := filepath.Split(path)
	return &Sysctls{
		ns: ns, directory: directory, saved: statefile.New[map[string]string](directory, name), root: DefaultSysctls, unsaved: map[string]string{},
	}
}

// WithRoot reads and writes the settings in another directory than DefaultSysctls. An unprivileged
// container has DefaultSysctls read-only, but may have the host's net/ mounted elsewhere. Empty
// means DefaultSysctls.
func (k *Sysctls) WithRoot(root string) *Sysctls {
	k.root = cmp.Or(root, DefaultSysctls)
	return k
}

// Name returns "sysctl".
func (*Sysctls) Name() string { return "sysctl" }

// Observe returns the current values of the changed settings.
func (k *Sysctls) Observe(ctx context.Context) ([]desired.Sysctl, error) {
	if err := checkContext(ctx, "read sysctls"); err != nil {
		return nil, err
	}
	previous, err := k.load()
	if err != nil {
		return nil, err
	}
	var out []desired.Sysctl
	for name := range previous {
		value, err := k.read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, desired.Sysctl{Name: name, Value: value})
	}
	return out, nil
}

// Normalize ignores the spacing between the numbers of a value.
func (*Sysctls) Normalize(want, have desired.Sysctl) desired.Sysctl {
	if sameWords(want.Value, have.Value) {
		want.Value = have.Value
	}
	return want
}

func sameWords(a, b string) bool {
	return strings.Join(strings.Fields(a), " ") == strings.Join(strings.Fields(b), " ")
}

// Apply writes settings, and restores the deleted ones.
func (k *Sysctls) Apply(ctx context.Context, changes []diff.Change[desired.Sysctl]) error {
	previous, err := k.load()
	if err != nil {
		return err
	}
	return converge.Each(ctx, changes, func(c diff.Change[desired.Sysctl]) error {
		switch c.Op {
		case diff.Delete:
			return k.restore(previous, c.Key)
		case diff.Create:
			return k.set(previous, c.Want)
		default:
			return k.write(c.Want.Name, c.Want.Value)
		}
	})
}

// set saves the current value and writes the desired one. It writes even if saving failed: a
// node without forwarding is worse than a lost value.
func (k *Sysctls) set(previous map[string]string, want desired.Sysctl) error {
	value, err := k.read(want.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return converge.ErrBlocked{On: "sysctl " + want.Name}
	}
	if err != nil {
		return err
	}
	if unsavedValue, known := k.unsaved[want.Name]; known {
		value = unsavedValue
	}
	if _, known := previous[want.Name]; !known {
		previous[want.Name] = value
	}
	saveErr := k.save(previous)
	if saveErr != nil {
		delete(previous, want.Name)
		k.unsaved[want.Name] = value
	} else {
		delete(k.unsaved, want.Name)
	}
	return errors.Join(k.write(want.Name, want.Value), saveErr)
}

func (k *Sysctls) restore(previous map[string]string, name string) error {
	value, known := previous[name]
	if !known {
		return nil
	}
	if err := k.write(name, value); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(previous, name)
	return k.save(previous)
}

func (k *Sysctls) read(name string) (value string, err error) {
	file, err := k.file(name)
	if err != nil {
		return "", err
	}
	err = k.ns.inside(func() error {
		raw, err := os.ReadFile(file)
		value = strings.TrimSpace(string(raw))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read sysctl: %w", err)
	}
	return value, nil
}

func (k *Sysctls) write(name, value string) error {
	file, err := k.file(name)
	if err != nil {
		return err
	}
	err = k.ns.inside(func() error {
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(value + "\n")
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return fmt.Errorf("write sysctl %s: %w", name, err)
	}
	return nil
}

func (k *Sysctls) file(name string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("sysctl %q is not a path below %s", name, k.root)
	}
	return filepath.Join(k.root, name), nil
}

func (k *Sysctls) load() (map[string]string, error) {
	previous, err := k.saved.Load()
	if err != nil {
		return nil, fmt.Errorf("parse previous sysctls: %w", err)
	}
	if previous == nil {
		previous = map[string]string{}
	}
	return previous, nil
}

func (k *Sysctls) save(previous map[string]string) error {
	if err := errors.Join(os.MkdirAll(k.directory, 0o755), k.saved.Save(previous)); err != nil {
		return fmt.Errorf("save previous sysctls: %w", err)
	}
	return nil
}
