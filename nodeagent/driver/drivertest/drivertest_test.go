package drivertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"hawser.dev/hawser/nodeagent/driver"
	"hawser.dev/hawser/nodeagent/kernel/ipsec"
	"hawser.dev/hawser/schema/fabric"
)

// agentEnv is the path of the program under test. If it is not set, the tests build the program
// from the source tree.
const agentEnv = "HAWSER_CABLETEST_AGENT"

// TestMain builds the agent, so that `go test` tests the current source.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv(agentEnv) != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "hawser-cabletest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	agent := filepath.Join(dir, "hawser-agent")
	build := exec.Command("go", "build", "-o", agent, "hawser.dev/hawser/cmd/hawser-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build hawser-agent: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(agentEnv, agent); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// TestConformance runs the suite on every driver. WireGuard runs in the kernel if the kernel
// has it.
func TestConformance(t *testing.T) {
	for _, d := range driver.Drivers() {
		t.Run(d.Traits().Name, func(t *testing.T) {
			t.Parallel()
			Suite{Agent: os.Getenv(agentEnv), Driver: d, Missing: missing(d)}.Run(t)
		})
	}
}

// missing returns the program that a driver needs and that is not installed.
func missing(d driver.Driver) string {
	if _, err := ipsec.Program(); d.Traits().Name == fabric.DriverIPsec && err != nil {
		return "charon"
	}
	return ""
}
