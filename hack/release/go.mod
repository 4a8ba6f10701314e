module hawser.dev/hawser/hack/release

go 1.26.0
