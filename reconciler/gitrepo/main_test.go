package gitrepo_test

import (
	"os"
	"testing"

	"hawser.dev/hawser/internal/tlstest"
)

// TestMain has the process trust httptest's servers: a login is sent over https only.
func TestMain(m *testing.M) { os.Exit(tlstest.Run(m)) }
