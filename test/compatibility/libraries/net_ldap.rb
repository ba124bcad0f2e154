# frozen_string_literal: true

require_relative "../peers/openldap"

Compatibility.library "net-ldap", kind: "Shells, files and directories" do
  peer Compatibility::Peers::OpenLDAP
  load { require "net/ldap" }
  connect do |peer|
    login = {method: :simple, username: "cn=admin,dc=heddle", password: "secret"}
    Net::LDAP.new(host: peer.host, port: peer.port, auth: login).tap do |ldap|
      ldap.add(dn: "dc=heddle", attributes: {objectclass: %w[dcObject organization], dc: "heddle", o: "heddle"})
    end
  end
  ask do |ldap, number|
    name = "heddle#{number}"
    ldap.add(dn: "cn=#{name},dc=heddle", attributes: {objectclass: "device", cn: name, description: "x" * 400})
    ldap.search(base: "dc=heddle", filter: Net::LDAP::Filter.eq("cn", name)).first[:cn].first[/\d+/].to_i
  end
end
