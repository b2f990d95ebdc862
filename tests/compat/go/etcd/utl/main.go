// etcdutl's work on snapshots, as its released program does it.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/etcdutl/v3/etcdutl"
)

func main() {
	root := &cobra.Command{Use: "etcdutl", SilenceUsage: true}
	root.PersistentFlags().StringVarP(&etcdutl.OutputFormat, "write-out", "w", "simple", "how the answer is written")
	root.AddCommand(etcdutl.NewSnapshotCommand(), etcdutl.NewHashKVCommand())
	if root.Execute() != nil {
		os.Exit(1)
	}
}
