package root

import (
	"testing"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/doccheck"
)

// TestDocuments: what they cite of this program is there.
func TestDocuments(t *testing.T) {
	t.Parallel()
	wrong, err := doccheck.CheckAllDocs(newRoot(&cli.Env{Version: "dev"}), "../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range wrong {
		t.Error(line)
	}
}
