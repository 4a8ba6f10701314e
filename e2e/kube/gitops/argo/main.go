// Command argocd contains Argo CD without its server and user interface, and the programs that it
// runs: Kustomize, and an in-memory store with Redis's protocol. The name of the executable selects
// the program.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/alicebob/miniredis/v2"
	controller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	applicationset "github.com/argoproj/argo-cd/v3/cmd/argocd-applicationset-controller/commands"
	reposerver "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
	"github.com/spf13/cobra"
	kustomize "sigs.k8s.io/kustomize/kustomize/v5/commands"
)

func main() {
	if err := run(filepath.Base(os.Args[0])); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(name string) error {
	var command *cobra.Command
	switch name {
	case "argocd-application-controller":
		command = controller.NewCommand()
	case "argocd-applicationset-controller":
		command = applicationset.NewCommand()
	case "argocd-repo-server":
		command = reposerver.NewCommand()
	case "kustomize":
		command = kustomize.NewDefaultCommand()
	case "redis":
		return redis()
	default:
		return fmt.Errorf("no program has the name %s", name)
	}
	return command.Execute()
}

// redis runs the in-memory store. It advances the store's clock, so that entries expire.
func redis() error {
	address := flag.String("address", "", "address to listen on")
	flag.Parse()
	store := miniredis.NewMiniRedis()
	if err := store.StartAddr(*address); err != nil {
		return fmt.Errorf("listen on %s: %w", *address, err)
	}
	for range time.Tick(time.Second) {
		store.FastForward(time.Second)
	}
	return nil
}
