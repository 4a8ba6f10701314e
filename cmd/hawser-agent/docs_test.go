package main

import (
	"flag"
	"testing"

	"hawser.dev/hawser/internal/doccheck"
)

// TestDocuments checks that the commands and flags of this program in the documents exist.
func TestDocuments(t *testing.T) {
	t.Parallel()
	wrong, err := doccheck.CheckAllDocs(newRoot(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range wrong {
		t.Error(line)
	}
}

var update = flag.Bool("update", false, "rewrite docs/commands-agent.md")

// TestCommandReference checks that docs/commands-agent.md has the current help texts.
func TestCommandReference(t *testing.T) {
	t.Setenv("HAWSER_CLUSTER", "") // the defaults of --cluster and --node
	t.Setenv("HAWSER_NODE", "")
	const introduction = `# Commands of hawser-agent

<!-- Generated from the help texts in cmd/hawser-agent; change them and run make generate. -->

For operators of nodes. In a cluster, run them in the agent's pod on the node:

    kubectl -n hawser-system exec hawser-agent-x7k2p -- /hawser-agent status

[cli.md](cli.md#exit-codes) lists the exit codes. [commands.md](commands.md) has the commands of
hawser, which reach all agents at once.
`
	if err := doccheck.CheckReference(newRoot(), "../../docs/commands-agent.md", introduction, *update); err != nil {
		t.Error(err)
	}
}
