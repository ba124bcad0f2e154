# frozen_string_literal: true

require_relative "../peers/openssh"

Compatibility.library "net-scp", kind: "Shells, files and directories" do
  peer Compatibility::Peers::OpenSSH
  load { require "net/scp" }
  connect do |peer|
    ssh = Net::SSH.start(peer.host, peer.username, port: peer.port, keys: [peer.key], config: false, keys_only: true,
      non_interactive: true, verify_host_key: :never)
    [ssh, peer.dir]
  end
  ask do |(ssh, folder), number|
    File.write("#{folder}/heddle#{number}", "heddle#{number}" * 40)
    ssh.scp.download!("#{folder}/heddle#{number}")[/\d+/].to_i
  end
  close { |(ssh)| ssh.shutdown! }
end
