package root

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
)

// build is the JSON form of `hawser version`.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from a tree with uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// String returns the version line for users.
func (b build) String() string {
	return fmt.Sprintf("hawser %s (%s, %s)\n", b.Version, b.Go, b.Platform)
}

func newVersionCommand(env *cli.Env) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  hawser version
  hawser --version`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild(env.Version)
			if output != "text" {
				return env.Encode(output, b)
			}
			_, err := io.WriteString(env.Out, b.String())
			return err
		},
	}
	cli.OutputFlag(cmd, false, &output, "text", "json", "yaml")
	return cmd
}

func thisBuild(version string) build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
