# frozen_string_literal: true

require_relative "../peers/openssh"

Compatibility.library "net-ssh", kind: "Shells, files and directories" do
  peer Compatibility::Peers::OpenSSH
  load { require "net/ssh" }
  connect do |peer|
    Net::SSH.start(peer.host, peer.username, port: peer.port, keys: [peer.key], config: false, keys_only: true,
      non_interactive: true, verify_host_key: :never)
  end
  ask { |ssh, number| ssh.exec!("echo heddle#{number}")[/\d+/].to_i }
  close(&:shutdown!)
end
