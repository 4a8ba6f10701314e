package doccheck

import (
	"bytes"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/manpage"
)

// CheckReference returns an error unless the file has the introduction and the reference of all
// commands of root. With update it writes the file first.
func CheckReference(root *cobra.Command, file, introduction string, update bool) error {
	want := []byte(introduction + "\n" + manpage.Reference(root))
	if update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			return fmt.Errorf("write reference of commands: %w", err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read reference of commands: %w", err)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s differs from the help texts of %s: run make generate", file, root.Name())
	}
	return nil
}
