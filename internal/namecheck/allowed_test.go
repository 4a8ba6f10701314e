package namecheck

// allowedForNow lists names, as file:name, that have yet to be renamed.
const allowedForNow = `
nodeagent/cluster/apiobjects/corefile/corefile.go:begin
nodeagent/cluster/apiobjects/corefile/corefile_test.go:TestFileBeside
nodeagent/cluster/apiobjects/corefile/corefile_test.go:ours
nodeagent/cluster/apiobjects/corefile/parse.go:begin
nodeagent/cluster/apiobjects/corefile/stub.go:begin
nodeagent/cluster/kube/events.go:note
nodeagent/dns/cases_test.go:asked
nodeagent/observe/nftrace/trace.go:Place
nodeagent/peer/endpoint/selector_test.go:away
nodeagent/peer/migration/model_test.go:back
nodeagent/peer/pathmtu/path.go:back
nodeagent/peer/pathmtu/path_test.go:begin
nodeagent/plan.go:planBeside
nodeagent/round/remotes.go:found
nodeagent/status/diagnosis.go:Kept
nodeagent/status/diagnosis.go:Place
`
