package root

import (
	"testing"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/doccheck"
)

// TestDocuments checks that the commands and flags of this program in the documents exist.
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

// TestCommandReference checks that docs/commands.md has the current help texts.
func TestCommandReference(t *testing.T) {
	t.Setenv("HAWSER_ROOT_KEY", "") // the default of --root-key
	const introduction = `# Commands of hawser

<!-- Generated from the help texts in internal/cli; change them and run make generate. -->

For users: what each command does, its flags and its exit codes. [cli.md](cli.md) explains what all
commands share. Every command also accepts ` + "`--color auto|always|never`" + `.
[commands-agent.md](commands-agent.md) has the commands of hawser-agent.
`
	if err := doccheck.CheckReference(newRoot(&cli.Env{Version: "dev"}), "../../../docs/commands.md", introduction, *update); err != nil {
		t.Error(err)
	}
}
