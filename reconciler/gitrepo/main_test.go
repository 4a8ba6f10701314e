package gitrepo_test

import (
	"os"
	"testing"

	"hawser.dev/hawser/internal/tlstest"
)

// TestMain trusts httptest's certificates, because credentials are sent only over https.
func TestMain(m *testing.M) { os.Exit(tlstest.Run(m)) }
