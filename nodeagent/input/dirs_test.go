package input

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/dirwatch"
)

// TestWatchedDirs checks that each directory is watched once. In directories with other files, only
// the named files count.
func TestWatchedDirs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		config Config
		want   []dirwatch.Dir
	}{
		{"an agent of a host", Config{FabricDir: "/n/fabric", KeysDir: "/n/keys", Trust: "/n/trust/signers", Identity: "/n/identity"},
			[]dirwatch.Dir{{Path: "/n/fabric"}, {Path: "/n/keys"}, {Path: "/n/trust", Files: []string{"signers"}}, {Path: "/n", Files: []string{"identity"}}}},
		{"files in the same directory", Config{FabricDir: "/n/fabric/", Trust: "/n/signers", Identity: "/n/identity"},
			[]dirwatch.Dir{{Path: "/n/fabric"}, {Path: "/n", Files: []string{"signers", "identity"}}}},
		{"all in one directory", Config{FabricDir: "/n", KeysDir: "/n", Trust: "/n/signers", Identity: "/n/identity"}, []dirwatch.Dir{{Path: "/n"}}},
		{"the fabric alone", Config{FabricDir: "/n/fabric"}, []dirwatch.Dir{{Path: "/n/fabric"}}},
	} {
		if d := cmp.Diff(tt.want, watchedDirs(tt.config, nil)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}
