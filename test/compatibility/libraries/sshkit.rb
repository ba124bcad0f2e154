# frozen_string_literal: true

require_relative "../peers/openssh"

Compatibility.library "sshkit", kind: "Shells, files and directories" do
  peer Compatibility::Peers::OpenSSH
  load do
    require "sshkit"
    require "sshkit/dsl"
    SSHKit.config.output_verbosity = :fatal
  end
  connect do |peer|
    options = {keys: [peer.key], config: false, keys_only: true, non_interactive: true, verify_host_key: :never}
    SSHKit::Host.new(hostname: peer.host, port: peer.port, user: peer.username, ssh_options: options)
  end
  ask { |host, number| SSHKit::Backend::Netssh.new(host).capture("echo", "heddle#{number}")[/\d+/].to_i }
  because :at_once, "They do run at once, but its pool first opens a connection for each task."
end
