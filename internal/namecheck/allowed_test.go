package namecheck

// allowedForNow lists names, as file:name, that have yet to be renamed.
const allowedForNow = `
nodeagent/cluster/apiobjects/corefile/corefile.go:begin
nodeagent/cluster/apiobjects/corefile/corefile_test.go:TestFileBeside
nodeagent/cluster/apiobjects/corefile/corefile_test.go:ours
nodeagent/cluster/apiobjects/corefile/parse.go:begin
nodeagent/cluster/apiobjects/corefile/stub.go:begin
nodeagent/cluster/kube/events.go:note
`
