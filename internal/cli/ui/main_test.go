package ui_test

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"hawser.dev/hawser/internal/cli/root"
)

// TestMain makes hawser a program for the tests that publish with it.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"hawser": func() { os.Exit(root.Run("dev", os.Args[1:])) }})
}
