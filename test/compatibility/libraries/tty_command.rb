# frozen_string_literal: true

require_relative "../program"

Compatibility.library "tty-command", gem: "tty-command", kind: "Programs" do
  peer(:scripted, &Compatibility::Program.peer)
  load { require "tty-command" }
  connect { |peer| peer }
  ask do |peer, number|
    TTY::Command.new(printer: :null).run(*Compatibility::Program.command(peer, number)).out[/\d+/].to_i
  end
end
