# frozen_string_literal: true

require_relative "../program"

Compatibility.library "pty (PTY.spawn)", gem: "pty", kind: "Programs" do
  peer(:scripted, &Compatibility::Program.peer)
  load { require "pty" }
  connect { |peer| peer }
  ask do |peer, number|
    PTY.spawn(*Compatibility::Program.command(peer, number)) { |output, _| break output.gets }[/\d+/].to_i
  end
end
