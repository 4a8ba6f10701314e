package ui_test

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"hawser.dev/hawser/internal/cli/root"
)

// TestMain provides the program hawser in PATH, with which the tests publish.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"hawser": func() { os.Exit(root.Run("dev", os.Args[1:])) }})
}
