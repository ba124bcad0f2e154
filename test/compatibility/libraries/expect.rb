# frozen_string_literal: true

require_relative "../program"

Compatibility.library "expect (IO#expect)", gem: "expect", kind: "Programs" do
  peer(:scripted, &Compatibility::Program.peer)
  load do
    require "pty"
    require "expect"
  end
  connect { |peer| peer }
  ask do |peer, number|
    PTY.spawn(*Compatibility::Program.command(peer, number)) do |output, _|
      break output.expect(/(heddle\d+){40}/, 30).first
    end[/\d+/].to_i
  end
end
