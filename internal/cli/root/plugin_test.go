package root

import (
	"bytes"
	"strings"
	"testing"

	"hawser.dev/hawser/internal/cli"
)

// TestPluginName checks that help and errors of the kubectl plugin name the command as users call
// it.
func TestPluginName(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	root := newRoot(&cli.Env{Version: "dev", Out: &out, Err: &out})
	nameAsPlugin(root)
	root.SetArgs([]string{"show", "connections", "--help"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "  hawser ") {
			t.Errorf("help names another program: %s", line)
		}
	}
	for _, want := range []string{"\n  kubectl hawser show connections [flags]\n", "\n  kubectl hawser show connections --context fra=admin@fra"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help lacks %q:\n%s", want, out.String())
		}
	}
	root.SetArgs([]string{"statsu"})
	if err := root.Execute(); err == nil || !strings.Contains(err.Error(), `for "kubectl hawser"`) {
		t.Errorf("unknown command: %v", err)
	}
}
