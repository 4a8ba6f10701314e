package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// addExamples gives each command the examples of its --help.
func addExamples(root *cobra.Command) {
	examples := map[string]string{
		"hawser-agent": `
hawser-agent status
hawser-agent plan`,
		"run": `
hawser-agent run --cluster office --node db1 --fabric /etc/hawser/fabric --keys /etc/hawser/keys --identity /etc/hawser/identity.txt --facts /etc/hawser/facts`,
		"plan": `
hawser-agent plan --running`,
		"status": `
hawser-agent status
hawser-agent status -o json`,
		"cleanup": `
hawser-agent cleanup`,
		"drain": `
hawser-agent drain && systemctl reboot
hawser-agent drain --wait 2m --until-restart`,
		"undrain": `
hawser-agent undrain`,
		"diagnose": `
hawser-agent diagnose --for 30s`,
		"verify": `
hawser-agent verify
hawser-agent verify --export shop/web --timeout 1s`,
		"kernel": `
hawser-agent kernel -o json`,
		"metrics": `
hawser-agent metrics`,
		"version": `
hawser-agent version
hawser-agent --version`,
	}
	for _, cmd := range append(root.Commands(), root) {
		if text := strings.TrimPrefix(examples[cmd.Name()], "\n"); text != "" {
			cmd.Example = "  " + strings.ReplaceAll(text, "\n", "\n  ")
		}
	}
}
