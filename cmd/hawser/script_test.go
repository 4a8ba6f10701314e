package main

import (
	"flag"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"hawser.dev/hawser/nodeagent/cluster/kube/kubetest"
)

var update = flag.Bool("update", false, "rewrite expected output in the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"hawser": main})
}

// TestScripts runs the scripts of testdata with the real commands.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup:               setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"agent":    agent,
			"cluster":  clusterAPI,
			"gitproxy": gitProxy,
			"put":      putObjects,
			"written":  writtenTo,
		},
	})
}

// setup hides the user's git configuration and keys from the script.
func setup(env *testscript.Env) error {
	for _, name := range []string{"AUTHOR", "COMMITTER"} {
		env.Setenv("GIT_"+name+"_NAME", "t")
		env.Setenv("GIT_"+name+"_EMAIL", "t@example.org")
		env.Setenv("GIT_"+name+"_DATE", "2026-01-02T03:04:05Z")
	}
	env.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
	env.Setenv("GIT_CONFIG_SYSTEM", "/dev/null")
	env.Setenv("HAWSER_LAB_DIR", filepath.Join(env.WorkDir, "lab"))
	env.Setenv("HAWSER_ROOT_KEY", "")
	env.Values[clustersKey{}] = map[string]*kubetest.Server{}
	return nil
}

// agent SOCKET FILE answers GET /status on a unix socket with the content of a file, like an agent,
// until the script ends.
func agent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: agent SOCKET FILE")
	}
	socket, body := ts.MkAbs(args[0]), ts.ReadFile(args[1])
	ts.Check(os.MkdirAll(filepath.Dir(socket), 0o755))
	// The absolute path may be too long for a unix socket, and a relative path needs the
	// process's working directory. So the socket is created at a short path and moved.
	dir, err := os.MkdirTemp("", "hw")
	ts.Check(err)
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	ts.Check(err)
	ts.Check(os.Rename(filepath.Join(dir, "s"), socket))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) })
	srv := &http.Server{Handler: mux}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(listener) }()
	ts.Defer(func() {
		_ = srv.Close()
		<-ended
		_ = os.RemoveAll(dir)
	})
}
