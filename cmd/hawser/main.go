// Command hawser is the operator's tool: it checks, renders and compares a
// clusterset's topology, runs the reconciler and the lab, and shows what the
// agents report.
package main

import (
	"os"

	"hawser.dev/hawser/internal/cli/root"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(root.Run(version, os.Args[1:])) }
