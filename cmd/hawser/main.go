// Command hawser is the operator's tool: it checks, renders and compares the topology of a
// clusterset, runs the reconciler and the lab, and shows the reports of the agents.
package main

import (
	"os"

	"hawser.dev/hawser/internal/cli/root"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(root.Run(version, os.Args[1:])) }
