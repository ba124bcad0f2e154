# frozen_string_literal: true

require_relative "../program"

Compatibility.library "posix-spawn", gem: "posix-spawn", kind: "Programs" do
  peer(:scripted, &Compatibility::Program.peer)
  load { require "posix-spawn" }
  connect { |peer| peer }
  ask do |peer, number|
    POSIX::Spawn::Child.new(*Compatibility::Program.command(peer, number)).out[/\d+/].to_i
  end
end
